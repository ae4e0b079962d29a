"""A picture as patches: resized to whole cells, normalised, cut into squares cell by cell.

Source: Qwen2VLImageProcessorPil of transformers 5.23, whose bits they have. It knows no prompt and no video.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

LONGEST_SIDE = 200  # times the shorter one
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""The values for red, green and blue where a checkpoint names none: those of CLIP (Radford et al. 2021)."""
SIZE = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
"""Pixels at least and at most, where a checkpoint names none; the names are the files' own."""


class PicturePatches:
    """Pictures to patches, as a checkpoint's preprocessor_config.json (``settings``) says.

    ``size`` takes the place of the file's own: pixels of a picture, at least and at most.
    """

    def __init__(self, settings: Mapping[str, Any], size: Mapping[str, int] | None = None) -> None:
        self.patch = int(settings.get("patch_size") or 14)
        self.merge = int(settings.get("merge_size") or 2)
        self.times = int(settings.get("temporal_patch_size") or 2)
        found = size or {**SIZE, **(settings.get("size") or {})}
        own: Mapping[str, Any] = {} if size else settings
        self.least = int(own.get("min_pixels") or found["shortest_edge"])
        self.most = int(own.get("max_pixels") or found["longest_edge"])
        mean, deviation = (settings.get("image_mean") or MEAN), (settings.get("image_std") or DEVIATION)
        levels = (np.arange(256, dtype=np.float64) * (1 / 255)).astype(np.float32)[:, None]
        self._table = (levels - np.array(mean, np.float32)) / np.array(deviation, np.float32)

    def __call__(self, pictures: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> tuple[Tensor, tuple[int, int]]:
        """Return patches [pictures · rows · columns, values] of pictures [height, width, 3] of one size, and their
        (rows, columns). Raises ValueError for a picture that is too long."""
        high, wide, _ = pictures[0].shape
        high, wide = fitted(high, wide, self.patch * self.merge, self.least, self.most)
        patches = np.concatenate([self._patches(one, high, wide) for one in pictures])
        return torch.from_numpy(patches), (high // self.patch, wide // self.patch)

    def _patches(self, picture: NDArray[np.uint8], high: int, wide: int) -> NDArray[np.float32]:
        """Patches in the order of their cells, each with its colours one after the other, each of those twice: a
        picture fills all times of its patches."""
        resized = Image.fromarray(picture).resize((wide, high), Image.Resampling.BICUBIC)
        values = self._table[np.asarray(resized), np.arange(3)]
        cell = self.merge, self.patch
        squares = values.reshape(-1, *cell, wide // math.prod(cell), *cell, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        whole = np.repeat(squares[:, :, :, :, :, None], self.times, 5)
        return whole.reshape(-1, math.prod(whole.shape[4:]))


def fitted(high: int, wide: int, cell: int, least: int, most: int) -> tuple[int, int]:
    """Return a picture's height and width in whole cells, which has ``least`` to ``most`` pixels and about its shape.

    Raises ValueError for one of which a side is too long.
    """
    longer, shorter = max(high, wide), min(high, wide)
    if longer / shorter > LONGEST_SIDE:
        raise ValueError(f"one side is {longer / shorter:g} times the other, {LONGEST_SIDE} at most")
    sides = round(high / cell) * cell, round(wide / cell) * cell
    if math.prod(sides) > most:
        scale = math.sqrt(high * wide / most)
        return max(cell, math.floor(high / scale / cell) * cell), max(cell, math.floor(wide / scale / cell) * cell)
    if math.prod(sides) < least:
        scale = math.sqrt(least / (high * wide))
        return math.ceil(high * scale / cell) * cell, math.ceil(wide * scale / cell) * cell
    return sides
