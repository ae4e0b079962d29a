"""Pipecat's OpenAI Live service in a pipeline, its backend delegated to the server: the microphone and loudspeaker of
client.py."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import part
from client import WEATHER, Loudspeaker, Microphone
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    FunctionCallResultFrame,
    LLMFullResponseEndFrame,
    LLMRunFrame,
    SpeechOutputAudioRawFrame,
    TranscriptionFrame,
    TTSTextFrame,
)
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.live.llm import OpenAILiveLLMService
from pipecat.services.openai.responses.llm import OpenAIResponsesLLMService
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner


class User(BaseObserver):
    """What the user gets: the frames that the service pushes."""

    def __init__(self) -> None:
        super().__init__(observe_every_push=False)
        self.report = part.Report()
        self.sound = bytearray()
        self.words = ""
        self.ended = 0
        self.news = asyncio.Condition()
        self._taken = 0

    async def on_push_frame(self, data: FramePushed) -> None:
        frame = data.frame
        match frame:
            case SpeechOutputAudioRawFrame() if isinstance(data.source, OpenAILiveLLMService):
                self.sound += frame.audio
            case TTSTextFrame() if isinstance(data.source, OpenAILiveLLMService):
                self.words += frame.text
            case LLMFullResponseEndFrame() if isinstance(data.source, OpenAILiveLLMService):
                self.ended += 1
            case TranscriptionFrame():
                self.report.heard = frame.text
            case FunctionCallResultFrame() if isinstance(data.source, OpenAILiveLLMService):
                self.report.call = {"name": frame.function_name, "arguments": json.dumps(dict(frame.arguments))}
            case ErrorFrame():
                self.report.errors.append(frame.error)
            case _:
                return
        async with self.news:
            self.news.notify_all()

    async def until(self, true: Any) -> None:
        async with self.news:
            await self.news.wait_for(true)

    async def answer(self) -> None:
        """The next answer to its end."""
        self._taken += 1
        await self.until(lambda: self.ended >= self._taken)
        self.report.transcript = self.words.strip()
        self.report.audio_s = part.audible_s(self.sound)


OPENINGS = {"live_text": part.PHRASE, "live_tool": part.TOOL_CALL, "live_barge_in": part.LONG}


async def play(task: part.Task) -> part.Report:
    backend = OpenAILiveLLMService.ResponsesDelegation(
        settings=OpenAIResponsesLLMService.Settings(model="gpt-5.4-mini")
    )
    settings = OpenAILiveLLMService.Settings(system_instruction="Be brief.")
    llm = OpenAILiveLLMService(api_key="sk-none", base_url=task.live, settings=settings, delegation=backend)
    started = asyncio.Event()
    llm.add_event_handler("on_session_started", lambda *_: started.set())
    user = User()
    llm.register_function("get_weather", weather)
    params = TransportParams(
        audio_in_enabled=True, audio_out_enabled=True, audio_in_sample_rate=part.RATE_HZ, audio_out_end_silence_secs=0
    )
    microphone, loudspeaker = Microphone(params), Loudspeaker(params)
    opening = OPENINGS.get(task.scenario)
    messages: Any = [{"role": "developer", "content": opening}] if opening else []
    aggregators = LLMContextAggregatorPair(LLMContext(messages, tools=ToolsSchema(standard_tools=[WEATHER])))
    pipeline = Pipeline([microphone, aggregators.user(), llm, loudspeaker, aggregators.assistant()])
    rates = PipelineParams(audio_in_sample_rate=part.RATE_HZ, audio_out_sample_rate=part.RATE_HZ)
    worker = PipelineWorker(pipeline, params=rates, observers=[user])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(runner.run())
        await worker.queue_frames([LLMRunFrame()])
        await started.wait()
        await SCENARIOS[task.scenario](user, microphone, task)
        await worker.cancel()
        await running
    return user.report


async def weather(call: FunctionCallParams) -> None:
    await call.result_callback(f"sunny in {call.arguments['city']}")


async def text(user: User, microphone: Microphone, task: part.Task) -> None:
    await user.answer()


async def speak(user: User, microphone: Microphone, task: part.Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone.speak(task))
        await user.answer()


async def barge_in(user: User, microphone: Microphone, task: part.Task) -> None:
    await user.until(lambda: part.audible_s(user.sound) >= part.ENOUGH_S)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(microphone.speak(task))
        await user.answer()
        spoken, user.words = user.words.split(), ""
        assert spoken == [f"word{i}" for i in range(len(spoken))], spoken
        user.report.interrupted, user.report.interrupted_audio_s = len(spoken) < 200, part.audible_s(user.sound)
        user.sound.clear()
        await user.answer()


SCENARIOS = {"live_text": text, "live_voice": speak, "live_tool": text, "live_barge_in": barge_in}

part.run(play)
