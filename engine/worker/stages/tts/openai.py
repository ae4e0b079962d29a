"""A voice that uses a remote server's ``/v1/audio/speech``, clause by clause, for any thinker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from engine.chunk import Audio, Chunk, Text, VoiceText, kinds
from engine.core import SPEAKER_RATE_HZ, Facets, StageInfo, Wave
from engine.deployment.llm_urls import leaving
from engine.errors import StageFailed
from engine.worker.llm.prefetch import Prefetcher
from engine.worker.remote.speech import SpeechServer, speech_options
from engine.worker.remote.watch import Watch
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed
from engine.worker.tts.answer_audio import LETTER_S, AnswerSound
from engine.worker.tts.clauses import CLAUSES_AHEAD, Clause, clauses, on_one_line
from engine.worker.tts.voices import named

PIECES_AHEAD = 256
"""Maximum buffered pieces of a clause's audio, of up to 64 kB each, so that the server need not wait."""

Piece = tuple[Wave, int]


class OpenAiTtsStage(Streamed):
    """The stage.

    A server's audio differs each time, so an answer that has begun is not repeated. The next clause is requested when
    the first audio of the current one has arrived, and never more than one ahead.
    """

    patient = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = speech_options(config.options)
        voices = tuple(named(name, options.language) for name in options.names)
        return StageInfo(
            takes=kinds(Text, VoiceText),
            emits=kinds(Audio),
            slots=config.slots,
            replay="never",
            facets=Facets(
                voices=voices, languages=(options.language,) if options.language else (), leaving=leaving(options.url)
            ),
        )

    def __init__(self, config: StageConfig, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        super().__init__(config)
        self._options = speech_options(config.options)
        self._api = SpeechServer(self._options)
        self.server = self._watch = Watch(self._options.who, self._api.probe, sleep)

    async def aclose(self) -> None:
        await self._api.aclose()

    def open(self, req: StageRequest) -> None:
        self._api.check_voice(req.request.voice)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        texts = Prefetcher(clauses(req, inputs), CLAUSES_AHEAD, f"{req.request.id}:clauses")
        sayings = Prefetcher(self._sayings(req, texts), 1, f"{req.request.id}:say")
        # Each is closed even if closing the one before is cancelled.
        async with aclosing(texts), aclosing(sayings), aclosing(self._audio(req, sayings)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _sayings(
        self, req: StageRequest, texts: AsyncIterator[Clause]
    ) -> AsyncGenerator[tuple[Clause, Prefetcher[Piece]]]:
        """Yield each clause with its audio in progress. The caller closes the audio."""
        async for clause in texts:
            sound = Prefetcher(self._sound(req, clause), PIECES_AHEAD, f"{req.request.id}:sound")
            try:
                yield clause, sound
                await sound.begun.wait()
            except BaseException:
                await sound.aclose()
                raise

    async def _sound(self, req: StageRequest, clause: Clause) -> AsyncGenerator[Piece]:
        """Yield the server's audio of a clause. A clause without letters has none, and is not sent."""
        if not clause.lettered:
            return
        said = self._api.say(on_one_line(clause.text), req.request.voice, req.request.speed)
        with self._watch.asking():
            async with aclosing(said) as pieces:
                async for piece in pieces:
                    self._watch.answered()
                    yield piece

    async def _audio(
        self, req: StageRequest, sayings: AsyncIterator[tuple[Clause, Prefetcher[Piece]]]
    ) -> AsyncGenerator[Audio]:
        answer = AnswerSound(round(req.request.max_audio_s * SPEAKER_RATE_HZ), LETTER_S / req.request.speed)
        async for clause, sound in sayings:
            async with aclosing(sound):
                answer.begin(clause)
                async for wave, rate_hz in sound:
                    for audio in answer.push(wave, rate_hz):
                        yield audio
                    if answer.full:
                        req.cut = True
                        return
                for audio in answer.end():
                    yield audio
                if answer.mute:
                    req.cut = True
                    break
        if answer.lettered and not answer.sounded:
            raise StageFailed(
                f"{self._options.who} returned no audio for this text. Does its voice support the language?"
            )


STAGE = OpenAiTtsStage
