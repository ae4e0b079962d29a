"""Conversion of the audio, pictures and videos of a conversation to encoder inputs.

A picture becomes patches. Two frames of a video form one time step. In a video with audio, pictures and audio are
interleaved by time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core import AudioPart, ImagePart, Part, VideoPart
from engine.errors import RequestError
from engine.worker.omni.block import Block, PictureGrid, named
from engine.worker.omni.film import CAMERA, Film, StreamingFilm
from engine.worker.omni.pictures import PicturePatches
from engine.worker.omni.positions import RopePositions
from engine.worker.omni.sound import AudioLayout, MelFrontend, StreamingMel

LARGEST_PICTURE = 64_000_000  # pixels
MOST_FRAMES = 768  # maximum frames of a video, as in the reference
KNOWN_BYTES = 128 << 20  # size of the feature cache in bytes: about twenty minutes of audio
VIDEO_CELLS = {"shortest_edge": 128, "longest_edge": 768}  # minimum and maximum per frame, as in the reference


class MediaProcessor:
    """Converts parts of messages to encoder inputs."""

    def __init__(self, settings: dict[str, Any], audio: AudioLayout, positions: RopePositions, merge: int) -> None:
        self._known: dict[tuple[int, int], tuple[Block, ...]] = {}
        self._held = 0
        self._lock = threading.Lock()  # prompts are built in threads
        self.frontend = MelFrontend(settings, audio)
        self._settings = settings
        self._eyes = PicturePatches(settings)
        self.audio = audio
        self.positions = positions
        self.merge = merge

    @cached_property
    def _video_eyes(self) -> PicturePatches:
        cell = (self._eyes.patch * self.merge) ** 2
        return PicturePatches(self._settings, {name: cells * cell for name, cells in VIDEO_CELLS.items()})

    def listen(self) -> StreamingMel:
        """Start processing the audio of a live turn."""
        return StreamingMel(self.frontend)

    def watch(self) -> StreamingFilm:
        """Start processing the audio and camera frames of a live turn."""
        return StreamingFilm(self.listen(), self._new_film(CAMERA.fps))

    def blocks(self, parts: Sequence[Part]) -> list[tuple[Block, ...]]:
        """Return the blocks of each media part. All parts are processed together, as in the reference.

        Raises RequestError for invalid media.
        """
        longest = longest_sound(parts)
        try:
            return [self._blocks(part, longest) for part in parts if _sensed(part)]
        except ValueError as error:
            raise RequestError(f"image: {error}") from None

    def _blocks(self, part: Part, longest: int) -> tuple[Block, ...]:
        """Return a part's blocks, from the cache if possible: every turn contains the whole conversation.

        ``longest`` is the number of samples of the conversation's longest clip, to which shorter clips may be padded.
        """
        self._check(part)
        pcm = _sound(part)
        silence = 0 if pcm is None else self.audio.silence(len(pcm), longest)
        times = np.array(getattr(part, "times_s", ()))
        contents = pcm, getattr(part, "pixels", None), getattr(part, "frames", None), times
        name = named(type(part).__name__, *contents, fps=getattr(part, "fps", 0))
        with self._lock:
            known = self._known.get((name, silence))
        if known is None:
            known = self._new_blocks(part, name, silence)
        with self._lock:
            self._forget((name, silence))
            self._known[name, silence] = known
            self._held += _size(known)
            while self._held > KNOWN_BYTES:
                self._forget(next(iter(self._known)))
        return known

    def _forget(self, which: tuple[int, int]) -> None:
        self._held -= _size(self._known.pop(which, ()))

    def _new_blocks(self, part: Part, name: int, silence: int) -> tuple[Block, ...]:
        pcm = _sound(part)
        match part:
            case ImagePart():
                return (Block(name).seeing(self._pictures(name, *self._picture(np.asarray(part.pixels))), (0.0,)),)
            case VideoPart() if pcm is not None:
                return self._film(part, self.frontend.whole(np.asarray(pcm), silence))
            case VideoPart():
                pictures = self._pictures(name, *self._video(np.asarray(part.frames)))
                times = self.positions.times(len(pictures), self._video_eyes.times / part.fps)
                return (Block(name).seeing(pictures, times),)
            case _:
                return self.frontend.whole(np.asarray(pcm), silence)

    def _film(self, part: VideoPart, windows: Sequence[Block]) -> tuple[Block, ...]:
        """Return the segments of a video with audio."""
        film = self._new_film(part.fps)
        slots = [int(at_s * part.fps) for at_s in part.times_s] or range(len(part.frames))
        for slot, frame in zip(slots, part.frames, strict=True):
            film.add(np.asarray(frame), slot)
        return film.segments(windows, whole=True)

    def _new_film(self, fps: float) -> Film:
        return Film(fps, self.positions, self.audio.tokens(self.audio.window), self._shared)

    def _shared(self, name: int, frames: NDArray[np.uint8]) -> PictureGrid:
        """Return the picture of two frames, or of one frame that is used twice."""
        return self._pictures(name, *self._video(frames))[0]

    def _pictures(self, name: int, pixels: Tensor, grid: tuple[int, ...]) -> list[PictureGrid]:
        """Return one picture per time step, named so that the names of all their rows are consecutive."""
        _, high, wide = grid
        cells = (high // self.merge) * (wide // self.merge)
        steps = enumerate(pixels.split(high * wide))
        return [PictureGrid(name + step * cells, own, (high, wide), self.merge) for step, own in steps]

    def _picture(self, pixels: NDArray[np.uint8]) -> tuple[Tensor, tuple[int, ...]]:
        patches, grid = self._eyes([pixels])
        return patches, (1, *grid)

    def _video(self, frames: NDArray[np.uint8]) -> tuple[Tensor, tuple[int, ...]]:
        """Return the patches of a video. Each frame becomes a picture; then pairs of frames share their patches."""
        times = self._video_eyes.times
        pixels, (high, wide) = self._video_eyes(frames)
        patches = pixels.view(len(frames), high * wide, 3, times, -1)
        patches = torch.cat((patches, patches[-1:].expand(-len(frames) % times, -1, -1, -1, -1)))
        turns = [patches[at::times, :, :, at] for at in range(times)]
        whole = torch.stack(turns, 3)
        return whole.reshape(-1, pixels.shape[1]), (len(whole), high, wide)

    def _check(self, part: Part) -> None:
        """Raise RequestError for invalid media, before any work that depends on its size."""
        if (pcm := _sound(part)) is not None:
            self.audio.check(len(pcm))
        if isinstance(part, ImagePart) and not _picturable(shape := np.shape(part.pixels)):
            raise RequestError(f"image: a picture of shape {list(shape)} cannot be seen (use height, width, 3 colours)")
        if isinstance(part, VideoPart):
            count, *shape = np.shape(part.frames) or (0,)
            if not (1 <= count <= MOST_FRAMES and _picturable(shape) and 0 < part.fps < math.inf):
                raise RequestError(
                    f"video: frames of shape {[count, *shape]} at {part.fps:g} a second cannot be seen (at most "
                    f"{MOST_FRAMES}, height, width, 3 colours)"
                )


def longest_sound(parts: Sequence[Part]) -> int:
    """Return the samples of the longest audio clip. The reference pads all clips of a conversation to it."""
    return max((len(pcm) for part in parts if (pcm := _sound(part)) is not None), default=0)


def _sensed(part: Part) -> bool:
    return isinstance(part, ImagePart | VideoPart) or _sound(part) is not None


def _sound(part: Part) -> Any:
    """Return the samples of a part; None if it has none."""
    return part.pcm if isinstance(part, AudioPart | VideoPart) else None


def _size(blocks: Sequence[Block]) -> int:
    return sum(block.size for block in blocks)


def _picturable(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 < shape[0] * shape[1] <= LARGEST_PICTURE
