"""Pipecat's services that speak and hear over HTTP, with their defaults: an address is all that they are told."""

from __future__ import annotations

import base64

import part
from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    LLMContextFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.openai.stt import OpenAISTTService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.tests.utils import PipelineParams, run_test


async def play(task: part.Task) -> part.Report:
    return await SCENARIOS[task.scenario](task, {"base_url": f"http://{task.base}/v1", "api_key": "sk-none"})


async def chat(task: part.Task, where: dict[str, str]) -> part.Report:
    context = LLMContext([{"role": "user", "content": part.PHRASE}])
    frames = await passed(OpenAILLMService(**where), LLMContextFrame(context))
    return report(frames, transcript="".join(one.text for one in frames if isinstance(one, LLMTextFrame)))


async def speech(task: part.Task, where: dict[str, str]) -> part.Report:
    frames = await passed(OpenAITTSService(**where), TTSSpeakFrame(part.WORDS))
    pcm = b"".join(one.audio for one in frames if isinstance(one, TTSAudioRawFrame))
    return report(frames, sound=base64.b64encode(part.riff(pcm)).decode())


async def transcription(task: part.Task, where: dict[str, str]) -> part.Report:
    pieces = [InputAudioRawFrame(piece, part.RATE_HZ, 1) for piece in part.pieces(task)]
    turn = [VADUserStartedSpeakingFrame(), *pieces, VADUserStoppedSpeakingFrame()]
    frames = await passed(OpenAISTTService(**where), *turn)
    return report(frames, heard=" ".join(one.text for one in frames if isinstance(one, TranscriptionFrame)))


async def passed(service: object, *frames: object) -> list[object]:
    """What comes out of a pipeline of this service."""
    params = PipelineParams(audio_in_sample_rate=part.RATE_HZ, audio_out_sample_rate=part.RATE_HZ)
    down, up = await run_test(service, frames_to_send=frames, pipeline_params=params)
    return [*down, *up]


def report(frames: list[object], **got: str) -> part.Report:
    return part.Report(**got, errors=[one.error for one in frames if isinstance(one, ErrorFrame)])


SCENARIOS = {"chat": chat, "speech": speech, "transcription": transcription}

logger.remove()
part.run(play)
