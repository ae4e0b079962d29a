"""MiMo-Audio, from the language model to code2wav: groups of four codec frames, each after a row of padding."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk
from engine.errors import ConfigError, StageFailed
from engine.worker.codec import within
from engine.worker.transitions.accumulator import Ids
from engine.worker.transitions.transition import FullPayload, step_of
from engine.worker.transitions.windows import PayloadWindow, Windows

BOOKS = np.array([1025, 1025, 129, 129, 129, 129, 129, 129])
FRAMES = 4  # per group, which lasts 160 ms
GROUP = (1, len(BOOKS), FRAMES)
PAD_ID = 151_667
ROW = (len(BOOKS) + 1) * FRAMES  # ids per group
MOST_GROUPS = 18_192 // ROW  # the released code2wav takes at most 18192 ids
LEAST_CHUNK, LEAST_LEFT = 3, 40
"""Minimum groups in a window, and before it: the vocoder attends 40 groups back, and fewer change the voice."""


class Groups(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="mimo_audio.groups"):
    """A step of the language model: codes, int64 [groups, 1, 8 codebooks, 4 frames]; zeros for a step with text."""

    codes: Ids | None = None


class PaddedGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="mimo_audio.padded_groups"):
    """Consecutive groups for code2wav."""

    ids: NDArray[np.int32]
    """int32 [36 * groups]: frame by frame, a padding id and eight codes."""
    context: int = 0
    """The number of first groups that have been decoded before."""
    finished: bool = True


def padded(groups: Groups) -> NDArray[np.int32]:
    """Return the ids of the groups with audio, int32 [groups, 36]. Raises StageFailed for an invalid code."""
    codes = np.zeros((0, *GROUP), np.int64) if groups.codes is None else groups.codes
    if codes.shape[1:] != GROUP:
        raise StageFailed(f"groups of codec frames are [n, 1, 8, 4], not {list(codes.shape)}")
    codes = within(codes[codes.any(axis=(1, 2, 3))], BOOKS[:, None])
    padded = np.concatenate([np.full((len(codes), 1, 1, FRAMES), PAD_ID), codes], axis=2)
    return padded.swapaxes(2, 3).reshape(-1, ROW).astype(np.int32)


def whole_of(groups: Groups) -> PaddedGroups:
    """Return an answer as one payload, cut after the last group that code2wav can take."""
    return PaddedGroups(padded(groups)[:MOST_GROUPS].reshape(-1))


def whole() -> FullPayload[Groups, PaddedGroups]:
    return FullPayload(Groups, whole_of)


class MimoStream:
    """The same in windows of ``chunk`` groups, after up to ``left`` earlier ones. Raises ConfigError for too few."""

    def __init__(self, chunk: int = 10, left: int = LEAST_LEFT) -> None:
        if chunk < LEAST_CHUNK or left < LEAST_LEFT:
            least = f"{LEAST_CHUNK} groups per window after {LEAST_LEFT}"
            raise ConfigError(f"MiMo-Audio's vocoder needs at least {least}, not {chunk} after {left}")
        self._windows = Windows(np.zeros((0, ROW), np.int32), lambda _: chunk, left)

    def add(self, chunk: Chunk) -> Iterable[PaddedGroups]:
        return [_payload(window) for window in self._windows.add(padded(step_of(chunk, Groups)))]

    def end(self) -> PaddedGroups:
        return _payload(self._windows.end())


def _payload(window: PayloadWindow) -> PaddedGroups:
    return PaddedGroups(window.frames.reshape(-1), window.context, window.finished)
