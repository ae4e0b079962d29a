"""CovoAudio, from the language model to code2wav: one vocabulary contains both text tokens and codes."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.worker.codec import within
from engine.worker.transitions.accumulator import Ids
from engine.worker.transitions.transition import FullPayload

FIRST_ID = 151_671  # lower ids are text, and end marks
BOOK = 16_384


class CovoTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="covo_audio.tokens"):
    """A step of the language model: the ids that were drawn, int64 [n]."""

    ids: Ids | None = None


class CovoCodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="covo_audio.codes"):
    """All codes of an answer, int16 [n], each below BOOK; empty for an answer without audio."""

    codes: NDArray[np.int16]


def codes_of(tokens: CovoTokens) -> CovoCodes:
    """Return the ids of audio as codes, counted from the first such id. Raises StageFailed for an invalid code."""
    ids = np.zeros(0, np.int64) if tokens.ids is None else tokens.ids
    return CovoCodes(within(ids[ids >= FIRST_ID] - FIRST_ID, BOOK).astype(np.int16))


def whole() -> FullPayload[CovoTokens, CovoCodes]:
    return FullPayload(CovoTokens, codes_of)
