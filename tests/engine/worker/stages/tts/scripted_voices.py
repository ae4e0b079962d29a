"""Voices without a model: each notes what it is given to say, and its sound is a level of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from engine.core import SPEAKER_RATE_HZ, StageInfo
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import ClauseSpeaker, Piece, Saying
from engine.worker.tts.number_words import number_words
from engine.worker.tts.voices import named, voice_info


class Scripted(ClauseSpeaker):
    """100 ms of sound for each clause."""

    language: ClassVar[str]
    ids: ClassVar[tuple[str, ...]]
    level: ClassVar[float]

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return voice_info(config, [named(id, cls.language) for id in cls.ids], "", (cls.language,))

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self.said: list[str] = []
        self.spell = number_words(self.language)

    def warm_up(self) -> None:
        pass

    def wording(self, text: str) -> str:
        line = super().wording(text)
        return self.spell(line) if self.spell else line

    def pieces(self, saying: Saying) -> Iterator[Piece]:
        self.said.append(f"{saying.voice}: {saying.text}")
        yield np.full(SPEAKER_RATE_HZ // 10, self.level, np.float32), None


class English(Scripted):
    language = "en-US"
    ids = ("0", "joe")
    level = 0.1


class German(Scripted):
    language = "de"
    ids = ("0", "anna")
    level = 0.2


class Japanese(Scripted):
    language = "ja"
    ids = ("kei",)
    level = 0.3
