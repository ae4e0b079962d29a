"""Conversion of pictures to patches: resize to whole cells, normalise, cut into squares cell by cell.

The results are bit-identical to Qwen2VLImageProcessorPil of transformers 5.23.
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

LONGEST_SIDE = 200  # maximum ratio of the longer side to the shorter one
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Defaults for red, green and blue: the values of CLIP (Radford et al. 2021)."""
SIZE = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
"""Defaults for the minimum and maximum number of pixels, under the names that preprocessor_config.json uses."""


class PicturePatches:
    """Converts pictures to patches, as configured by a checkpoint's preprocessor_config.json (``settings``).

    ``size`` overrides the file's minimum and maximum number of pixels.
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
        """Convert pictures [height, width, 3] of one size.

        Returns:
            Patches [pictures * rows * columns, values], and (rows, columns): the number of patches of one picture.

        Raises:
            ValueError: One side is too long relative to the other one.
        """
        high, wide, _ = pictures[0].shape
        high, wide = fitted(high, wide, self.patch * self.merge, self.least, self.most)
        patches = np.concatenate([self._patches(one, high, wide) for one in pictures])
        return torch.from_numpy(patches), (high // self.patch, wide // self.patch)

    def _patches(self, picture: NDArray[np.uint8], high: int, wide: int) -> NDArray[np.float32]:
        """Return the patches, ordered by cell. Each contains its colours in turn, each colour once per time step."""
        resized = Image.fromarray(picture).resize((wide, high), Image.Resampling.BICUBIC)
        values = self._table[np.asarray(resized), np.arange(3)]
        cell = self.merge, self.patch
        squares = values.reshape(-1, *cell, wide // math.prod(cell), *cell, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        whole = np.repeat(squares[:, :, :, :, :, None], self.times, 5)
        return whole.reshape(-1, math.prod(whole.shape[4:]))


def fitted(high: int, wide: int, cell: int, least: int, most: int) -> tuple[int, int]:
    """Return the height and width in whole cells, with ``least`` to ``most`` pixels and about the same aspect ratio.

    Raises:
        ValueError: A side is too long relative to the other one.
    """
    longer, shorter = max(high, wide), min(high, wide)
    if longer / shorter > LONGEST_SIDE:
        raise ValueError(f"one side is {longer / shorter:g} times as long as the other (at most {LONGEST_SIDE})")
    sides = round(high / cell) * cell, round(wide / cell) * cell
    if math.prod(sides) > most:
        scale = math.sqrt(high * wide / most)
        return max(cell, math.floor(high / scale / cell) * cell), max(cell, math.floor(wide / scale / cell) * cell)
    if math.prod(sides) < least:
        scale = math.sqrt(least / (high * wide))
        return math.ceil(high * scale / cell) * cell, math.ceil(wide * scale / cell) * cell
    return sides
