"""The state of a talker's voice at a moment, and what is kept of a conversation for the next. Computes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Usage
from engine.core import SPEAKER_RATE_HZ
from engine.worker.nn.sampler import SamplingParams

FRAME_S = 0.08
FRAME_SAMPLES = round(FRAME_S * SPEAKER_RATE_HZ)
CHARACTERS_PER_S = 15.0
"""The speed of voices, to estimate how far one has come in its text: no weights were at hand that could be asked.

Of nano's voice, where it is known, the estimate is 2 characters off at the median of frames and 8 at the 95th
percentile (`pytest -s tests/contracts/test_text_end.py`)."""
ANSWER_FRAMES = 4096  # positions kept for speech: five and a half minutes


@dataclass(frozen=True, slots=True)
class PrefixKV:
    """The computed state of a conversation's user turns: keys and values [layers, heads, rows, dim]."""

    keys: Tensor
    values: Tensor


@dataclass(slots=True)
class Speech:
    """A voice on its way: ``num_computed_tokens`` rows are in the cache, the next goes in at ``position``.

    ``names`` are those of the user's rows so far, of which the first ``num_cached_tokens`` were taken over from an
    earlier request. ``spoken`` [frames, groups] are the first frames, where another replica has spoken them.
    """

    voice: int
    params: SamplingParams
    spoken: NDArray[np.int16]
    lead: tuple[int, ...] = ()
    names: list[int] = field(default_factory=list[int])
    num_cached_tokens: int = 0
    num_computed_tokens: int = 0
    position: float = 0.0
    frames: int = 0
    limit: int = ANSWER_FRAMES
    characters: int = 0
    started: bool = False
    ended: bool = False
    usage: Usage | None = None
    unkept: bool = False
    """Whether the user's turns are still to be kept for the session: when the first frame is on its way to be sound."""

    @property
    def reached(self) -> int:
        return min(self.characters, estimated(self.frames * FRAME_S))


def estimated(seconds: float) -> int:
    """Characters that a voice has come to in its text."""
    return math.ceil(seconds * CHARACTERS_PER_S)
