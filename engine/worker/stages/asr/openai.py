"""Speech recognition by a remote server's ``/v1/audio/transcriptions``, for any thinker.

A turn is sent as a whole when it has ended, so there are no preliminary transcripts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import numpy as np

from engine.chunk import Chunk, Speech, Transcript, kinds
from engine.core import MIC_RATE_HZ, Facets, Pcm, Request, SpeechHints, StageInfo
from engine.deployment.llm_urls import leaving
from engine.errors import RequestError
from engine.worker.asr.speech_gate import is_loud, spoken
from engine.worker.asr.transcribing import pcm_of
from engine.worker.remote.transcription import TranscriptionServer, transcription_options
from engine.worker.remote.watch import Watch
from engine.worker.stage import StageConfig
from engine.worker.streamed import Streamed

LONGEST_S = 600
"""Maximum seconds of a turn: 19 MB. Servers, such as OpenAI's, accept at most 25 MB."""


class OpenAiAsrStage(Streamed):
    """The stage. It sends one request for each turn that may have ended, even if the answer is later dropped."""

    patient = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = transcription_options(config.options)
        return StageInfo(
            takes=kinds(Speech),
            emits=kinds(Transcript),
            feeds=kinds(Transcript),
            slots=config.slots,
            replay="never",
            facets=Facets(
                heard_languages=(options.language,) if options.language else (),
                hints=frozenset({"language", "prompt", "keywords"}),
                leaving=leaving(options.url, text=False, audio=True),
            ),
        )

    def __init__(self, config: StageConfig, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        super().__init__(config)
        options = transcription_options(config.options)
        self._api = TranscriptionServer(options)
        self.server = self._watch = Watch(options.who, self._api.probe, sleep)

    async def aclose(self) -> None:
        await self._api.aclose()

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        pcm = await _turn(inputs)
        text = spoken(await self._transcribe(pcm, request.hints), len(pcm) / MIC_RATE_HZ) if is_loud(pcm) else ""
        yield Transcript(text, final=True, understood=bool(text))

    async def _transcribe(self, pcm: Pcm, hints: SpeechHints) -> str:
        with self._watch.asking():
            text = await self._api.hear(pcm, hints)
        self._watch.answered()
        return text


STAGE = OpenAiAsrStage


async def _turn(inputs: AsyncIterator[Chunk]) -> Pcm:
    """Return the whole turn, once it has ended. Raises RequestError as soon as it is too long."""
    pieces: list[Pcm] = []
    count = 0
    async for pcm in pcm_of(inputs):
        pieces.append(pcm)
        count += len(pcm)
        if count > LONGEST_S * MIC_RATE_HZ:
            raise RequestError(
                f"A turn of more than {LONGEST_S // 60} minutes cannot be transcribed; speak in shorter turns."
            )
    return np.concatenate(pieces) if pieces else np.empty(0, np.int16)
