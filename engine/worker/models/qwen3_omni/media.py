"""What is heard and seen in a conversation, as the encoders eat it, and the rows that it takes in a prompt.

Features are made by transformers' own extractors. A video is its frames, two of them a row block, each block at its
time; with its sound, blocks and sounds take turns by their times. Knows no tokenizer and no template.
"""

from __future__ import annotations

import hashlib
import math
import threading
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
REACH = 400  # samples: the extractor's window, beyond which a sound's frames see nothing
KNOWN_BYTES = 128 << 20  # of features of what may be sent again: some twenty minutes of sound
VIDEO_SIZE = {"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32}  # pixels of a frame: the reference's own


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One sound, picture or video, and its rows in a prompt.

    ``sounds`` rows are heard, a grid of (time, height, width) is seen; a step in time counts ``pace`` positions.
    ``mel`` [mels, frames] and ``pixels`` [patches, values] of a grid of ``patches`` are what the encoders eat; ``name``
    tells one content from another.
    """

    name: int
    sounds: int = 0
    mel: Tensor | None = None
    grid: tuple[int, int, int] = (0, 0, 0)
    pixels: Tensor | None = None
    patches: tuple[int, ...] = (0, 0, 0)
    pace: float = 1.0

    @property
    def size(self) -> int:
        """Bytes of features."""
        return sum(0 if one is None else one.nbytes for one in (self.mel, self.pixels))

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

    @property
    def names(self) -> NDArray[np.int64]:
        """A name for every row, below 0: what was computed for one holds again where all names up to it are alike."""
        return -1 - (np.arange(self.rows) + self.name)


class Senses:
    """Parts of messages to features."""

    def __init__(self, settings: dict[str, Any], thinker_config: Any) -> None:
        self._known: dict[tuple[int, int], Block] = {}
        self._held = 0
        self._lock = threading.Lock()  # prompts are made in threads
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

    def blocks(self, parts: Sequence[Part]) -> tuple[Block, ...]:
        """A block for each part that is heard or seen; features are made as the reference makes them: all at once.

        Raises RequestError for what cannot be.
        """
        longest = max((len(pcm) for part in parts if (pcm := _sound(part)) is not None), default=0)
        try:
            return tuple(self._block(part, longest) for part in parts if _sensed(part))
        except ValueError as error:
            raise RequestError(f"image: {error}") from None

    def _block(self, part: Part, longest: int) -> Block:
        """A part's block, perhaps an earlier request's: a conversation is sent whole each turn."""
        _check(part)
        pcm = _sound(part)
        silence = 0 if pcm is None else min(longest - len(pcm), REACH)
        name = _name(part)
        with self._lock:
            known = self._known.get((name, silence))
        if known is None:
            known = self._made_block(part, name, silence)
        with self._lock:
            old = self._known.pop((name, silence), None)
            self._known[name, silence] = known
            self._held += known.size - (0 if old is None else old.size)
            while self._held > KNOWN_BYTES:
                self._held -= self._known.pop(next(iter(self._known))).size
        return known

    def _made_block(self, part: Part, name: int, silence: int) -> Block:
        pcm = _sound(part)
        mel = None if pcm is None else self._hear(np.asarray(pcm, np.float32) / np.float32(32768), silence)
        sounds = 0 if mel is None else audio_tokens(mel.shape[1], self.window)
        match part:
            case ImagePart():
                pixels, patches = self._picture(np.asarray(part.pixels))
                return Block(name, grid=self._merged(patches), pixels=pixels, patches=patches, pace=self.per_second)
            case VideoPart():
                pixels, patches = self._video(np.asarray(part.frames))
                pace = float(np.float32(self._video_eyes.temporal_patch_size / part.fps) * np.float32(self.per_second))
                return Block(name, sounds, mel, self._merged(patches), pixels, patches, pace)
            case _:
                return Block(name, sounds, mel)

    def _hear(self, wave: NDArray[np.float32], silence: int) -> Tensor:
        """Log-mel frames [mels, frames] of a sound.

        The reference pads the sounds of a conversation to the longest; of that, a sound's last frames see ``silence``.
        """
        padded = np.concatenate((wave, np.zeros(silence, np.float32)))
        found = self._ears(padded, sampling_rate=MIC_RATE_HZ, padding=True, truncation=False, return_tensors="pt")
        return found["input_features"][0, :, : -(-len(wave) // self._ears.hop_length)]

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

    def _merged(self, grid: tuple[int, ...]) -> tuple[int, int, int]:
        return grid[0], grid[1] // self.merge, grid[2] // self.merge


def audio_tokens(frames: int, window: int) -> int:
    """Rows that the encoder makes of so many mel frames: thirteen for each whole window pair, fewer for the rest."""
    rest = (frames % (2 * window) - 1) // 2 + 1
    return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + frames // (2 * window) * 13


def _name(part: Part) -> int:
    """62 bits that stand for what a part holds."""
    digest = hashlib.blake2b(type(part).__name__.encode(), digest_size=8)
    for content in (_sound(part), getattr(part, "pixels", None), getattr(part, "frames", None)):
        if content is not None:
            array = np.ascontiguousarray(content)
            digest.update(repr((array.shape, getattr(part, "fps", 0))).encode())
            digest.update(array.data)
    return int.from_bytes(digest.digest()) >> 2


def _sensed(part: Part) -> bool:
    return isinstance(part, ImagePart | VideoPart) or _sound(part) is not None


def _sound(part: Part) -> Any:
    """The samples of a part that has some, else None."""
    return part.pcm if isinstance(part, AudioPart | VideoPart) else None


def _check(part: Part) -> None:
    """Raises RequestError for what cannot be heard or seen; before anything of its size is done."""
    if (pcm := _sound(part)) is not None:
        length_s = len(pcm) / MIC_RATE_HZ
        if not SHORTEST_SOUND_S <= length_s <= LONGEST_SOUND_S:
            raise RequestError(
                f"audio: {length_s:.2f} s; between {SHORTEST_SOUND_S} and {LONGEST_SOUND_S:.0f} s can be heard"
            )
    if isinstance(part, ImagePart) and not _picturable(shape := np.shape(part.pixels)):
        raise RequestError(f"image: a picture of shape {list(shape)} cannot be seen (height, width, 3 colours)")
    if isinstance(part, VideoPart):
        count, *shape = np.shape(part.frames) or (0,)
        if not (1 <= count <= MOST_FRAMES and _picturable(shape) and 0 < part.fps < math.inf):
            raise RequestError(
                f"video: frames of shape {[count, *shape]} at {part.fps:g} a second cannot be seen (at most "
                f"{MOST_FRAMES}, height, width, 3 colours)"
            )


def _picturable(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 < shape[0] * shape[1] <= LARGEST_PICTURE
