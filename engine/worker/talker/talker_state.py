"""The state of a talker's voice at a moment. Computes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.core import SPEAKER_RATE_HZ
from engine.worker.nn.sampling_params import SamplingParams

FRAME_S = 0.08
FRAME_SAMPLES = round(FRAME_S * SPEAKER_RATE_HZ)
CHARACTERS_PER_S = 15.0
"""The speed of voices, to estimate how far one has come in its text: no weights were at hand that could be asked.

Of nano's voice, where it is known, the estimate is 2 characters off at the median of frames and 8 at the 95th
percentile (`pytest -s tests/contracts/test_text_end.py`)."""
ANSWER_FRAMES = 4096  # positions kept for speech: five and a half minutes


@dataclass(slots=True, kw_only=True)
class TalkerState:
    """A voice on its way: ``num_computed_tokens`` rows are in the cache, the next goes in at ``position``.

    ``spoken`` [frames, groups] are the first frames, which are known: ``given`` ones that stand before the answer (of a
    voice that is imitated), and those that another replica has spoken. ``frames`` counts all, and so does ``limit``.
    """

    params: SamplingParams
    spoken: NDArray[np.int16]
    given: int = 0
    num_computed_tokens: int = 0
    position: float = 0.0
    frames: int = 0
    limit: int = ANSWER_FRAMES
    characters: int = 0
    prepared: bool = False
    """Whether all that stands before the text is in, or on its way."""
    started: bool = False
    ended: bool = False

    @property
    def answered(self) -> int:
        """The answer's own frames so far."""
        return self.frames - self.given

    @property
    def reached(self) -> int:
        """An estimate of the characters of the answer that have been said."""
        return min(self.characters, estimated(self.answered * FRAME_S))


def estimated(seconds: float) -> int:
    """Characters that a voice has come to in its text."""
    return math.ceil(seconds * CHARACTERS_PER_S)
