"""Patches of pictures, held against transformers' own processor."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from engine.worker.omni.pictures import PicturePatches, fitted

FILES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "qwen3_omni": {
        "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5], "min_pixels": 3136, "max_pixels": 100_000,
        "size": {"shortest_edge": 65_536, "longest_edge": 12_845_056},
    },
    "qwen2_5_omni": {
        "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": None,
        "size": {"shortest_edge": 1024, "longest_edge": 40_000},
    },
    "other": {
        "patch_size": 4, "merge_size": 3, "temporal_patch_size": 1,
        "size": {"shortest_edge": 144, "longest_edge": 9999},
    },
}  # fmt: skip


def picture(high: int, wide: int) -> Any:
    return np.random.default_rng(high * wide).integers(0, 256, (high, wide, 3), dtype=np.uint8)


@pytest.mark.parametrize("file", [*FILES])
@pytest.mark.parametrize("shape", [(64, 64), (37, 91), (301, 17), (5, 900), (480, 640)])
def test_patches_have_the_bits_of_the_reference(file: str, shape: tuple[int, int]) -> None:
    pictures = [picture(*shape), 255 - picture(*shape)]
    theirs: Any = Qwen2VLImageProcessorPil(**deepcopy(FILES[file]))  # it writes into its sizes
    expected = theirs(images=pictures, return_tensors="pt")
    patches, grid = PicturePatches(FILES[file])(pictures)
    assert torch.equal(patches, expected["pixel_values"])
    assert [[1, *grid]] * 2 == expected["image_grid_thw"].tolist()


def test_a_size_takes_the_place_of_a_files_own() -> None:
    size = {"shortest_edge": 1000, "longest_edge": 5000}
    given = {
        name: value for name, value in FILES["qwen3_omni"].items() if name not in ("min_pixels", "max_pixels", "size")
    }
    expected = Qwen2VLImageProcessorPil(**given, size=size)(images=[picture(90, 90)], return_tensors="pt")
    patches, _ = PicturePatches(FILES["qwen3_omni"], size)([picture(90, 90)])
    assert torch.equal(patches, expected["pixel_values"])


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([28, 32]))
def test_a_pictures_size_is_that_of_the_reference(high: int, wide: int, cell: int) -> None:
    limits = 9 * cell**2, 400 * cell**2
    if max(high, wide) / min(high, wide) > 200:
        with pytest.raises(ValueError, match=r"one side is .* times as long as the other \(at most 200\)"):
            fitted(high, wide, cell, *limits)
        return
    assert fitted(high, wide, cell, *limits) == smart_resize(high, wide, cell, *limits)
