"""The sounds and pictures of a conversation, as the encoders take them.

A picture is its patches. A video is its frames, two of them a row block, each block at its
time; with its sound, blocks and sounds take turns by their times. Knows no tokenizer and no template.
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
MOST_FRAMES = 768  # frames of a video: the reference samples no more
KNOWN_BYTES = 128 << 20  # bytes of features that may be sent again: some twenty minutes of sound
VIDEO_CELLS = {"shortest_edge": 128, "longest_edge": 768}  # of a frame, at least and at most: the reference's own


class MediaProcessor:
    """Parts of messages to features."""

    def __init__(self, settings: dict[str, Any], audio: AudioLayout, positions: RopePositions, merge: int) -> None:
        self._known: dict[tuple[int, int], tuple[Block, ...]] = {}
        self._held = 0
        self._lock = threading.Lock()  # prompts are made in threads
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
        """Begin to listen to a sound that is still being spoken."""
        return StreamingMel(self.frontend)

    def watch(self) -> StreamingFilm:
        """Begin to listen to and look at a turn that is still spoken and shown."""
        return StreamingFilm(self.listen(), self._new_film(CAMERA.fps))

    def blocks(self, parts: Sequence[Part]) -> list[tuple[Block, ...]]:
        """Return for each part that is heard or seen its blocks, a sound's windows; as the reference makes them, all at
        once.

        Raises RequestError for what cannot be.
        """
        longest = longest_sound(parts)
        try:
            return [self._blocks(part, longest) for part in parts if _sensed(part)]
        except ValueError as error:
            raise RequestError(f"image: {error}") from None

    def _blocks(self, part: Part, longest: int) -> tuple[Block, ...]:
        """A part's blocks, perhaps an earlier request's: a conversation is sent whole each turn."""
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
        """The stretches of a video with its sound."""
        film = self._new_film(part.fps)
        slots = [int(at_s * part.fps) for at_s in part.times_s] or range(len(part.frames))
        for slot, frame in zip(slots, part.frames, strict=True):
            film.add(np.asarray(frame), slot)
        return film.stretches(windows, whole=True)

    def _new_film(self, fps: float) -> Film:
        return Film(fps, self.positions, self.audio.tokens(self.audio.window), self._shared)

    def _shared(self, name: int, frames: NDArray[np.uint8]) -> PictureGrid:
        """Two frames that share their patches, or one for both."""
        return self._pictures(name, *self._video(frames))[0]

    def _pictures(self, name: int, pixels: Tensor, grid: tuple[int, ...]) -> list[PictureGrid]:
        """Make a picture of each step of a grid; their rows are named one after the other."""
        _, high, wide = grid
        cells = (high // self.merge) * (wide // self.merge)
        steps = enumerate(pixels.split(high * wide))
        return [PictureGrid(name + step * cells, own, (high, wide), self.merge) for step, own in steps]

    def _picture(self, pixels: NDArray[np.uint8]) -> tuple[Tensor, tuple[int, ...]]:
        patches, grid = self._eyes([pixels])
        return patches, (1, *grid)

    def _video(self, frames: NDArray[np.uint8]) -> tuple[Tensor, tuple[int, ...]]:
        """Every frame as a picture, which fills both times of its patches; then two frames share each patch."""
        times = self._video_eyes.times
        pixels, (high, wide) = self._video_eyes(frames)
        patches = pixels.view(len(frames), high * wide, 3, times, -1)
        patches = torch.cat((patches, patches[-1:].expand(-len(frames) % times, -1, -1, -1, -1)))
        turns = [patches[at::times, :, :, at] for at in range(times)]
        whole = torch.stack(turns, 3)
        return whole.reshape(-1, pixels.shape[1]), (len(whole), high, wide)

    def _check(self, part: Part) -> None:
        """Raises RequestError for what cannot be heard or seen; before anything of its size is done."""
        if (pcm := _sound(part)) is not None:
            self.audio.check(len(pcm))
        if isinstance(part, ImagePart) and not _picturable(shape := np.shape(part.pixels)):
            raise RequestError(f"image: a picture of shape {list(shape)} cannot be seen (height, width, 3 colours)")
        if isinstance(part, VideoPart):
            count, *shape = np.shape(part.frames) or (0,)
            if not (1 <= count <= MOST_FRAMES and _picturable(shape) and 0 < part.fps < math.inf):
                raise RequestError(
                    f"video: frames of shape {[count, *shape]} at {part.fps:g} a second cannot be seen (at most "
                    f"{MOST_FRAMES}, height, width, 3 colours)"
                )


def longest_sound(parts: Sequence[Part]) -> int:
    """Samples of the longest sound: the reference pads those of a conversation to it."""
    return max((len(pcm) for part in parts if (pcm := _sound(part)) is not None), default=0)


def _sensed(part: Part) -> bool:
    return isinstance(part, ImagePart | VideoPart) or _sound(part) is not None


def _sound(part: Part) -> Any:
    """The samples of a part that has some, else None."""
    return part.pcm if isinstance(part, AudioPart | VideoPart) else None


def _size(blocks: Sequence[Block]) -> int:
    return sum(block.size for block in blocks)


def _picturable(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 < shape[0] * shape[1] <= LARGEST_PICTURE
