"""The caller's speech: recordings, and texts that a voice speaks once and that every run then repeats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.bench.target import spoken, voiced
from app.commands.answer import ReceivedAnswer, Show, answer
from app.commands.sink import Nowhere
from app.commands.source import Answerer
from app.ids import new_id
from app.simulation.scenario import CallerTurn
from engine import SPEAKER_RATE_HZ, Request
from engine.core import Pcm


class CallerSpeech:
    """Speech as int16 [samples] at SPEAKER_RATE_HZ, without silence at its ends. ``source`` speaks the texts."""

    def __init__(self, source: Answerer | None, voice: str | None) -> None:
        self._source = source
        self._voice = voice
        self._spoken: dict[str, Pcm] = {}

    async def prepare(self, turns: Sequence[CallerTurn]) -> None:
        """Make the speech of these turns, so that no call waits for it. Raises EngineError."""
        for turn in turns:
            if turn.say or turn.audio is not None:
                await self.of(turn)

    async def of(self, turn: CallerTurn) -> Pcm:
        """Return the speech of a turn with ``say`` or ``audio``. Raises EngineError, also for speech without sound."""
        if turn.audio is not None:
            if turn.audio not in self._spoken:
                self._spoken[turn.audio] = spoken(Path(turn.audio))
            return self._spoken[turn.audio]
        pause = np.zeros(round(turn.pause_s * SPEAKER_RATE_HZ), np.int16)
        parts = [part for text in turn.say for part in (pause, await self._text(text))]
        return np.concatenate(parts[1:])

    async def _text(self, text: str) -> Pcm:
        if text not in self._spoken:
            assert self._source is not None
            result = ReceivedAnswer()
            request = Request(id=new_id("say"), session=new_id("sess"), messages=(), say=text, voice=self._voice)
            await answer(self._source, request, Nowhere(), Show(), result)
            wave = np.concatenate([*result.waves, np.zeros(0, np.float32)])
            self._spoken[text] = voiced((wave * 32767).astype(np.int16))
        return self._spoken[text]
