"""Qwen2.5-Omni, from the thinker to the talker (hidden rows), and from the talker to code2wav (ids of one codebook).

If the thinker's last token ended the answer, its hidden row is not for the talker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, Finish, Usage
from engine.errors import StageFailed
from engine.worker.transitions.accumulator import CONCAT, Accumulator, Ids
from engine.worker.transitions.transition import FullPayload, step_of

PAD_ID, START_ID, END_ID = 8_292, 8_293, 8_294  # codec ids; lower ids are codes
PLACEHOLDER = -1


class ThinkerStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.thought"):
    """A step of the thinker."""

    hidden: Annotated[NDArray[np.float32], CONCAT] | None = None
    """float32 [n, width] last hidden rows."""
    drawn_ids: Ids | None = None
    """int64 [n] ids that were drawn."""
    prompt_ids: NDArray[np.int64] | None = None
    """The prompt's ids, in the first step."""


class Conditioning(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.conditioning"):
    """The talker's input."""

    prompt: NDArray[np.float32]
    """float32 [len(prompt_ids), width] hidden rows of the prompt."""
    answer: NDArray[np.float32]
    """Hidden rows of the answer."""
    prompt_ids: NDArray[np.int64]
    drawn_ids: NDArray[np.int64]


class TalkerConditioning:
    """Collects an answer's conditioning. ``stops`` are the ids that end an answer whose ``Usage`` does not arrive."""

    def __init__(self, stops: Collection[int] = ()) -> None:
        self._steps = Accumulator(ThinkerStep)
        self._stops = stops
        self._finish: Finish | None = None

    def add(self, chunk: Chunk) -> Iterable[Conditioning]:
        if isinstance(chunk, Usage):
            self._finish = chunk.finish
        else:
            self._steps.add(step_of(chunk, ThinkerStep))
        return ()

    def end(self) -> Conditioning:
        """Return the rows, without the row of a stop token.

        Raises StageFailed if there are fewer rows than prompt ids.
        """
        whole, none = self._steps.whole, np.zeros(0, np.int64)
        prompt_ids = none if whole.prompt_ids is None else whole.prompt_ids
        drawn_ids = none if whole.drawn_ids is None else whole.drawn_ids
        stopped = len(drawn_ids) > 0 and (
            drawn_ids[-1] in self._stops if self._finish is None else self._finish != "length"
        )
        drawn_ids = drawn_ids[: len(drawn_ids) - stopped]
        hidden = np.zeros((0, 0), np.float32) if whole.hidden is None else whole.hidden
        if len(hidden) < max(1, len(prompt_ids)):
            raise StageFailed(f"the thinker gave {len(hidden)} hidden rows for a prompt of {len(prompt_ids)} ids")
        hidden = hidden[: len(prompt_ids) + len(drawn_ids)]
        return Conditioning(hidden[: len(prompt_ids)], hidden[len(prompt_ids) :], prompt_ids, drawn_ids)


class TalkerStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.drawn"):
    """A step of the talker: the ids that were drawn, int64 [n]."""

    ids: Ids | None = None


class TalkerCodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen2_5_omni.codes"):
    """All codes of an answer, int16 [n], each below PAD_ID; empty for an answer without audio."""

    codes: NDArray[np.int16]


@dataclass(slots=True)
class Sounding:
    """Extracts the codes of an answer as its ids arrive. Ids below ``book`` are codes.

    Placeholders stand for drawn ids that are not known. For each placeholder at the end, the last code is repeated, so
    that the audio keeps its length.
    """

    book: int = PAD_ID
    _last: NDArray[Any] | None = None
    _unknown: int = 0

    def add(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the codes [n] of further ids [m]."""
        known = np.flatnonzero(ids != PLACEHOLDER)
        self._unknown = len(ids) - 1 - known[-1] if known.size else self._unknown + len(ids)
        codes = ids[(ids >= 0) & (ids < self.book)]
        self._last = codes[-1:] if codes.size else self._last
        return codes

    def end(self) -> NDArray[np.int64]:
        """Return the codes that replace the placeholders at the end."""
        return np.zeros(0, np.int64) if self._last is None else np.repeat(self._last, self._unknown)


def codes_of(drawn: TalkerStep) -> TalkerCodes:
    sounding = Sounding()
    known = sounding.add(np.zeros(0, np.int64) if drawn.ids is None else drawn.ids)
    return TalkerCodes(np.concatenate([known, sounding.end()]).astype(np.int16))


def codes() -> FullPayload[TalkerStep, TalkerCodes]:
    return FullPayload(TalkerStep, codes_of)
