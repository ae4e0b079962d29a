"""What is heard and seen in a conversation, as the encoders eat it, and the rows that it takes in a prompt.

Features are made by transformers' own extractors. A video is its frames, two of them a row block, each block at its
time; with its sound, blocks and sounds take turns by their times. Knows no tokenizer and no template.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import WhisperFeatureExtractor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.core import MIC_RATE_HZ, AudioPart, ImagePart, Part, VideoPart
from engine.errors import RequestError

LONGEST_SOUND_S, SHORTEST_SOUND_S = 300.0, 0.02
LARGEST_PICTURE = 64_000_000  # pixels
MOST_FRAMES = 768  # of a video: the reference samples no more
VIDEO_SIZE = {"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32}  # pixels of a frame: the reference's own


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one sound, picture or video.

    ``sounds`` rows are heard, a grid of (time, height, width) is seen; a step in time counts ``pace`` positions.
    """

    sounds: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    pace: float = 1.0

    @property
    def rows(self) -> int:
        return self.sounds + math.prod(self.grid)

    @property
    def seen(self) -> NDArray[np.float32]:
        """Positions [3, cells] of what is seen, from 0: a cell's time, height and width."""
        cells = np.indices(self.grid, np.float32).reshape(3, -1)
        cells[0] *= np.float32(self.pace)
        return cells

    @property
    def heard(self) -> NDArray[np.float32]:
        return np.broadcast_to(np.arange(self.sounds, dtype=np.float32), (3, self.sounds))

    @property
    def order(self) -> NDArray[np.int64]:
        """How cells and sounds take turns by their times, as indices of all cells and then all sounds."""
        return np.argsort(np.concatenate((self.seen[0], self.heard[0])), kind="stable")


@dataclass(frozen=True, slots=True)
class Media:
    """Features of a whole conversation. ``pixels`` and ``grids`` hold the pictures first, then the videos."""

    blocks: tuple[Block, ...] = ()
    sounds: Tensor | None = None
    lengths: Tensor | None = None
    pixels: Tensor | None = None
    grids: Tensor | None = None


NOTHING = Media()


class Senses:
    """Parts of messages to features."""

    def __init__(self, settings: dict[str, Any], thinker_config: Any) -> None:
        self._ears: Any = WhisperFeatureExtractor.from_dict(settings)
        names = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")
        sizes = ("size", "min_pixels", "max_pixels")
        self._settings = {name: settings[name] for name in names if settings.get(name)}
        self._eyes: Any = self._made(**{name: settings[name] for name in sizes if settings.get(name)})
        self.merge = thinker_config.vision_config.spatial_merge_size
        self.per_second = thinker_config.position_id_per_seconds
        self.window = thinker_config.audio_config.n_window

    def _made(self, **sizes: Any) -> Any:
        return Qwen2VLImageProcessorPil(**self._settings, **sizes)

    @cached_property
    def _video_eyes(self) -> Any:
        return self._made(size=VIDEO_SIZE)

    def media(self, parts: Sequence[Part]) -> Media:
        """Features of everything that is heard and seen in these parts, made as the reference makes them: all at once.

        Raises RequestError for what cannot be.
        """
        waves = [_wave(pcm) for part in parts if (pcm := _sound(part)) is not None]
        pictures = [_pixels(part.pixels) for part in parts if isinstance(part, ImagePart)]
        videos = [_frames(part) for part in parts if isinstance(part, VideoPart)]
        sounds, lengths = self._hear(waves)
        try:
            seen = [self._picture(one) for one in pictures] + [self._video(one) for one in videos]
        except ValueError as error:
            raise RequestError(f"image: {error}") from None
        grids = torch.tensor([grid for _, grid in seen]) if seen else None
        pixels = torch.cat([values for values, _ in seen]) if seen else None
        blocks = self._blocks(parts, lengths, [grid for _, grid in seen], len(pictures))
        return Media(blocks, sounds, lengths, pixels, grids)

    def _hear(self, waves: Sequence[NDArray[np.float32]]) -> tuple[Tensor | None, Tensor | None]:
        """Log-mel frames of all sounds side by side [mels, frames], and how many each has."""
        if not waves:
            return None, None
        found = self._ears(
            waves, sampling_rate=MIC_RATE_HZ, padding=True, truncation=False, return_attention_mask=True,
            return_tensors="pt",
        )  # fmt: skip
        mask = found["attention_mask"].bool()
        return found["input_features"].permute(0, 2, 1)[mask].T, mask.sum(-1)

    def _picture(self, pixels: NDArray[np.uint8]) -> tuple[Tensor, tuple[int, ...]]:
        found = self._eyes(images=[pixels], return_tensors="pt")
        return found["pixel_values"], tuple(found["image_grid_thw"][0].tolist())

    def _video(self, frames: NDArray[np.uint8]) -> tuple[Tensor, tuple[int, ...]]:
        """Every frame as a picture, which fills both times of its patches; then two frames share each patch."""
        eyes = self._video_eyes
        found = eyes(images=list(frames), return_tensors="pt")
        _, high, wide = found["image_grid_thw"][0].tolist()
        patches = found["pixel_values"].view(len(frames), high * wide, 3, eyes.temporal_patch_size, -1)
        short = -len(frames) % eyes.temporal_patch_size
        patches = torch.cat((patches, patches[-1:].expand(short, -1, -1, -1, -1)))
        turns = [patches[at :: eyes.temporal_patch_size, :, :, at] for at in range(eyes.temporal_patch_size)]
        whole = torch.stack(turns, 3)
        return whole.reshape(-1, found["pixel_values"].shape[1]), (len(whole), high, wide)

    def _blocks(
        self, parts: Sequence[Part], lengths: Tensor | None, grids: Sequence[tuple[int, ...]], pictures: int
    ) -> tuple[Block, ...]:
        """One block for each part that is heard or seen, in the order of the prompt."""
        sounds = iter([] if lengths is None else [audio_tokens(int(n), self.window) for n in lengths])
        images, videos = iter(grids[:pictures]), iter(grids[pictures:])
        blocks: list[Block] = []
        for part in parts:
            match part:
                case ImagePart():
                    blocks.append(Block(0, self._merged(next(images)), self.per_second))
                case VideoPart():
                    heard = 0 if part.pcm is None else next(sounds)
                    pace = np.float32(self._video_eyes.temporal_patch_size / part.fps) * np.float32(self.per_second)
                    blocks.append(Block(heard, self._merged(next(videos)), float(pace)))
                case _ if _sound(part) is not None:
                    blocks.append(Block(next(sounds)))
                case _:
                    pass
        return tuple(blocks)

    def _merged(self, grid: tuple[int, ...]) -> tuple[int, int, int]:
        return grid[0], grid[1] // self.merge, grid[2] // self.merge


def audio_tokens(frames: int, window: int) -> int:
    """Rows that the encoder makes of so many mel frames: thirteen for each whole window pair, fewer for the rest."""
    rest = (frames % (2 * window) - 1) // 2 + 1
    return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + frames // (2 * window) * 13


def _sound(part: Part) -> Any:
    """The samples of a part that has some, else None."""
    return part.pcm if isinstance(part, AudioPart | VideoPart) else None


def _wave(pcm: Any) -> NDArray[np.float32]:
    length_s = len(pcm) / MIC_RATE_HZ
    if not SHORTEST_SOUND_S <= length_s <= LONGEST_SOUND_S:
        raise RequestError(
            f"audio: {length_s:.2f} s; between {SHORTEST_SOUND_S} and {LONGEST_SOUND_S:.0f} s can be heard"
        )
    return np.asarray(pcm, np.float32) / np.float32(32768)


def _pixels(found: Any) -> NDArray[np.uint8]:
    pixels = np.asarray(found)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not 0 < pixels.shape[0] * pixels.shape[1] <= LARGEST_PICTURE:
        raise RequestError(f"image: a picture of shape {list(pixels.shape)} cannot be seen (height, width, 3 colours)")
    return pixels


def _frames(part: VideoPart) -> NDArray[np.uint8]:
    frames = np.asarray(part.frames)
    if frames.ndim != 4 or not 1 <= len(frames) <= MOST_FRAMES or not 0 < part.fps < math.inf:
        raise RequestError(
            f"video: frames of shape {list(frames.shape)} at {part.fps:g} a second cannot be seen (at most "
            f"{MOST_FRAMES}, height, width, 3 colours)"
        )
    return np.stack([_pixels(frame) for frame in frames])
