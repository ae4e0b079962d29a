"""Voices of tests: tones, which an encoder of tests tells apart by their pitch."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.realtime.input.speaker_encoder import WIDTH, unit
from app.realtime.ports import Embedding
from tests.app.rig import tone

USER_HZ = 300.0
OTHER_HZ = 700.0


class PitchEncoder:
    """Takes the strongest frequency, in steps of 100 Hz, for the voice; counts what it heard."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.error: Exception | None = None

    def embed(self, pcm: Any) -> Embedding:
        self.heard.append(len(pcm))
        if self.error is not None:
            raise self.error
        return embedding_of(16_000 / len(pcm) * np.abs(np.fft.rfft(pcm)).argmax())


def embedding_of(hz: float) -> Embedding:
    """The embedding of a tone."""
    values = np.full(WIDTH, 1e-3)
    values[round(hz / 100)] = 1.0
    return unit(values)


def user(seconds: float) -> Any:
    return tone(seconds, USER_HZ)


def other(seconds: float) -> Any:
    return tone(seconds, OTHER_HZ)
