"""State of one answer of a talker."""

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
"""Estimated speaking rate, used to map audio to text. It was not measured with real weights.

With the nano voice, where the positions are known, the estimate is 2 characters off in the median and 8 at the 95th
percentile (`pytest -s tests/contracts/test_text_end.py`).
"""
ANSWER_FRAMES = 4096  # maximum frames of an answer: five and a half minutes


@dataclass(slots=True, kw_only=True)
class TalkerState:
    """State of an answer that is being spoken."""

    params: SamplingParams
    spoken: NDArray[np.int16]
    """Known first frames [frames, groups]: the frames of a cloned voice, then the frames from a lost replica."""
    given: int = 0
    """Number of frames in ``spoken`` that precede the answer (of a cloned voice)."""
    num_computed_tokens: int = 0
    """Rows in the KV cache."""
    position: float = 0.0
    """Rope position of the next row."""
    frames: int = 0
    """Frames so far, including ``given``."""
    limit: int = ANSWER_FRAMES
    """Maximum of ``frames``."""
    characters: int = 0
    """Characters of the answer's text received so far."""
    prepared: bool = False
    """Whether the whole prompt before the text has been computed or batched."""
    started: bool = False
    ended: bool = False

    @property
    def answered(self) -> int:
        """Number of frames that belong to the answer itself."""
        return self.frames - self.given

    @property
    def reached(self) -> int:
        """Estimated number of the answer's characters that have been spoken."""
        return min(self.characters, estimated(self.answered * FRAME_S))


def estimated(seconds: float) -> int:
    """Return the estimated number of characters that a voice speaks in ``seconds``."""
    return math.ceil(seconds * CHARACTERS_PER_S)
