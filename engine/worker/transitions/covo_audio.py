"""CovoAudio, from the language model to code2wav: ids of one vocabulary, of which those for sound are codes."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.worker.codec import within
from engine.worker.transitions.accumulator import Ids
from engine.worker.transitions.transition import FullPayload

FIRST_ID = 151_671  # below it are the ids of text, and the marks of the end
BOOK = 16_384


class CovoTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="covo_audio.tokens"):
    """A step of the language model: the ids that it drew, int64 [n]."""

    ids: Ids | None = None


class CovoCodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="covo_audio.codes"):
    """All codes of an answer, int16 [n], each below BOOK; none where the answer has no sound."""

    codes: NDArray[np.int16]


def codes_of(tokens: CovoTokens) -> CovoCodes:
    """Keep the ids that stand for sound, counted from the first of those. Raises StageFailed beyond the book."""
    ids = np.zeros(0, np.int64) if tokens.ids is None else tokens.ids
    return CovoCodes(within(ids[ids >= FIRST_ID] - FIRST_ID, BOOK).astype(np.int16))


def whole() -> FullPayload[CovoTokens, CovoCodes]:
    return FullPayload(CovoTokens, codes_of)
