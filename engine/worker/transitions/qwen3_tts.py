"""Qwen3-TTS, from the talker to code2wav: codec frames, preceded by those of a cloned voice's reference."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk
from engine.errors import ConfigError, StageFailed
from engine.worker.codec import within
from engine.worker.transitions.accumulator import Accumulator, Ids
from engine.worker.transitions.transition import FullPayload, step_of
from engine.worker.transitions.windows import PayloadWindow, Windows

BOOKS, BOOK = 16, 2_048


class Frames(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_tts.frames"):
    """A step of the talker."""

    codes: Ids | None = None
    """int64 [n, 16]."""
    reference: NDArray[np.int64] | None = None
    """int64 [frames, 16] frames of the reference, in the first step."""


class SpokenFrames(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_tts.spoken"):
    """Frames for code2wav."""

    codes: NDArray[np.int16]
    """int16 [n, 16]."""
    context: int = 0
    """The number of first frames whose audio must be cut off: the reference's, and those decoded before."""
    finished: bool = True


def voiced(frames: NDArray[np.int64]) -> NDArray[np.int16]:
    """Return the frames with audio, int16 [n, 16]: no padding (all zeros), no stop and no placeholder.

    Raises StageFailed for frames of another shape.
    """
    if frames.shape[1:] != (BOOKS,):
        raise StageFailed(f"codec frames must be [n, {BOOKS}], not {list(frames.shape)}")
    return frames[((frames >= 0) & (frames < BOOK)).all(axis=1) & frames.any(axis=1)].astype(np.int16)


def spoken(steps: Frames) -> SpokenFrames:
    """Return an answer as one payload, preceded by the reference's frames unless the answer is empty."""
    return _behind(_frames(steps.reference), PayloadWindow(voiced(_frames(steps.codes)), 0, finished=True))


def whole() -> FullPayload[Frames, SpokenFrames]:
    return FullPayload(Frames, spoken)


class Qwen3TtsStream:
    """The same in windows: ``first`` frames, then ``chunk`` at a time, after at most ``left`` earlier ones.

    Each window begins with the last ``most_reference`` frames of the reference. Raises ConfigError for invalid sizes.
    """

    def __init__(self, first: int = 1, chunk: int = 25, left: int = 72, most_reference: int = 72) -> None:
        if not 0 < first <= chunk or left < 0 or most_reference < 1:
            raise ConfigError(
                f"Qwen3-TTS: invalid windows of {first}, then {chunk} frames after {left} and {most_reference}"
            )
        self._most = most_reference
        self._steps = Accumulator(Frames)
        self._windows = Windows(np.zeros((0, BOOKS), np.int16), lambda n: chunk if n else first, left)

    def add(self, chunk: Chunk) -> Iterable[SpokenFrames]:
        step = step_of(chunk, Frames)
        self._steps.add(Frames(reference=step.reference))
        return [self._spoken(window) for window in self._windows.add(voiced(_frames(step.codes)))]

    def end(self) -> SpokenFrames:
        return self._spoken(self._windows.end())

    def _spoken(self, window: PayloadWindow) -> SpokenFrames:
        return _behind(_frames(self._steps.whole.reference)[-self._most :], window)


def _behind(reference: NDArray[np.int64], window: PayloadWindow) -> SpokenFrames:
    """Return a window after the reference's frames. Raises StageFailed for a code outside its codebook."""
    if not len(window.frames):
        return SpokenFrames(window.frames, 0, window.finished)
    before = within(reference, BOOK).astype(np.int16)
    return SpokenFrames(np.concatenate([before, window.frames]), len(before) + window.context, window.finished)


def _frames(frames: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return np.zeros((0, BOOKS), np.int64) if frames is None else frames
