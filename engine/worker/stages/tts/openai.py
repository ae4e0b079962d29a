"""The voice that asks a speech server, clause by clause: any server's ``/v1/audio/speech``, behind any thinker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import numpy as np

from engine.chunk import Audio, Chunk, Text, VoiceText, kinds
from engine.core import SPEAKER_RATE_HZ, Facets, StageInfo, Voice, Wave
from engine.errors import StageFailed
from engine.thinkers import leaving
from engine.worker.ahead import Ahead
from engine.worker.breaks import is_wide
from engine.worker.clause_sound import ClauseSound
from engine.worker.clauses import Clause, clauses, on_one_line
from engine.worker.remote.speech import SpeechServer, speech_options
from engine.worker.remote.watch import Watch
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed

CLAUSES_AHEAD = 64
"""Clauses that wait to be said: some minutes of speech. Text goes on to the client while the voice is behind."""
PIECES_AHEAD = 256
"""Pieces of a clause's sound, of up to 64 kB, that wait for its listener: the server need not."""
LETTER_S = 0.065
"""How long a letter takes to say, until the voice has shown it."""

Piece = tuple[Wave, int]


class Speaker(Streamed):
    """A server says the same words a little differently each time: of an answer that has begun, nothing is said again.

    While a clause is heard, the next one is asked for: from the first sound of the one before on, and never two.
    """

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = speech_options(config.options)
        voices = tuple(Voice(name, name, options.language) for name in options.names)
        return StageInfo(
            takes=kinds(Text, VoiceText), emits=kinds(Audio), slots=config.slots, replay="never",
            facets=Facets(
                voices=voices, languages=(options.language,) if options.language else (), leaving=leaving(options.url)
            ),
        )  # fmt: skip

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
        texts = Ahead(clauses(req, inputs), CLAUSES_AHEAD, f"{req.request.id}:clauses")
        sayings = Ahead(self._sayings(req, texts), 1, f"{req.request.id}:say")
        try:
            async with aclosing(self._audio(req, sayings)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            await sayings.aclose()
            await texts.aclose()

    async def _sayings(
        self, req: StageRequest, texts: AsyncIterator[Clause]
    ) -> AsyncGenerator[tuple[Clause, Ahead[Piece]]]:
        """Each clause, with its sound under way. Whoever takes one closes it."""
        async for clause in texts:
            sound = Ahead(self._sound(req, clause), PIECES_AHEAD, f"{req.request.id}:sound")
            try:
                yield clause, sound
                await sound.begun.wait()
            except BaseException:
                await sound.aclose()
                raise

    async def _sound(self, req: StageRequest, clause: Clause) -> AsyncGenerator[Piece]:
        """What the server makes of a clause; of marks alone nothing, and it is not asked."""
        if not clause.lettered:
            return
        said = self._api.say(on_one_line(clause.text), req.request.voice, req.request.speed)
        with self._watch.asking():
            async with aclosing(said) as pieces:
                async for piece in pieces:
                    self._watch.answered()
                    yield piece

    async def _audio(
        self, req: StageRequest, sayings: AsyncIterator[tuple[Clause, Ahead[Piece]]]
    ) -> AsyncGenerator[Audio]:
        answer = _Answer(round(req.request.max_audio_s * SPEAKER_RATE_HZ), LETTER_S / req.request.speed)
        async for clause, sound in sayings:
            async with aclosing(sound):
                answer.begin(clause)
                async for wave, rate_hz in sound:
                    for audio in answer.push(wave, rate_hz):
                        yield audio
                    if answer.full:
                        return
                for audio in answer.end():
                    yield audio
        if answer.lettered and not answer.sounded:
            raise StageFailed(f"{self._options.who} makes no sound of this text. Does its voice speak the language?")


STAGE = Speaker


class _Answer:
    """An answer's sound, of whatever rates its clauses have. Where a clause's words are is estimated by its letters,
    since nobody knows how long it gets: as fast as those before it were said."""

    def __init__(self, most: int, letter_s: float) -> None:
        self.sounded = self.lettered = False
        """Whether there was any sound, and whether there was anything but marks to say."""
        self._most, self._letter_s = most, letter_s
        self._sound, self._rate_hz = ClauseSound(SPEAKER_RATE_HZ, 0, most), SPEAKER_RATE_HZ
        self._clause = Clause("", ())
        self._given = 0  # samples of the clause
        self._last = np.empty(0, np.float32)  # its last sample: the marks at its end are given with one

    @property
    def full(self) -> bool:
        """Whether the answer is as long as it may be."""
        return self._sound.full

    def begin(self, clause: Clause) -> None:
        self._clause, self._given, self._last = clause, 0, self._last[:0]
        self.lettered = self.lettered or clause.lettered

    def push(self, wave: Wave, rate_hz: int) -> list[Audio]:
        if not len(self._last):
            self._begin_sound(rate_hz)
        wave = np.concatenate([self._last, wave])
        self._last = wave[-1:]
        self._given += len(wave) - 1
        return list(self._sound.push(wave[:-1], min(self._given / self._rate_hz / self._expected_s, 0.99)))

    def end(self) -> list[Audio]:
        if not len(self._last):
            return []
        self._letter_s *= (self._given + 1) / self._rate_hz / self._expected_s
        return [*self._sound.push(self._last, 1.0), *self._sound.end()]

    def _begin_sound(self, rate_hz: int) -> None:
        if rate_hz != self._rate_hz:
            self._sound, self._rate_hz = ClauseSound(rate_hz, self._sound.samples, self._most), rate_hz
        self._sound.begin(self._clause)
        self.sounded = True

    @property
    def _expected_s(self) -> float:
        """How long the clause is, to go by its letters; an ideograph is as long as three."""
        return self._letter_s * sum(3 if is_wide(one) else 1 for one in self._clause.text)
