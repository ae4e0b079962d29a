"""The published checkpoint of PersonaPlex 7B has every tensor that the networks read, in its shape.

Names and shapes are those of nvidia/personaplex-7b-v1: 475 tensors of 8,371,437,000 numbers in bfloat16. The files here
have a header and no data.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MimiConfig, MimiModel

from engine.errors import WeightsError
from engine.worker.models.moshi.source import CODEC, MoshiSource
from engine.worker.nn.memory import plan
from engine.worker.stage import StageConfig
from tests.oracles.tiny_moshi import kyutai_codec_shapes

pytestmark = pytest.mark.slow
Shapes = dict[str, tuple[int, ...]]
SLOTS = 3


def personaplex() -> Shapes:
    found: Shapes = {
        "text_emb.weight": (32_001, 4096),
        "text_linear.weight": (32_000, 4096),
        "out_norm.alpha": (1, 1, 4096),
        "depformer_text_emb.weight": (32_001, 1024),
    }
    for i in range(16):
        found |= {
            f"emb.{i}.weight": (2049, 4096),
            f"depformer_in.{i}.weight": (1024, 4096),
            f"linears.{i}.weight": (2048, 1024),
        }
    found |= {f"depformer_emb.{i}.weight": (2049, 1024) for i in range(15)}
    for i in range(32):
        found |= _layer(f"transformer.layers.{i}", 4096, 1) | _gating(f"transformer.layers.{i}.gating", 4096, 11_264)
    for i in range(6):
        found |= _layer(f"depformer.layers.{i}", 1024, 16)
        for step in range(16):
            found |= _gating(f"depformer.layers.{i}.gating.{step}", 1024, 2816)
    return found


def _layer(name: str, width: int, steps: int) -> Shapes:
    return {
        f"{name}.norm1.alpha": (1, 1, width),
        f"{name}.norm2.alpha": (1, 1, width),
        f"{name}.self_attn.in_proj_weight": (steps * 3 * width, width),
        f"{name}.self_attn.out_proj.weight": (steps * width, width),
    }


def _gating(name: str, width: int, inner: int) -> Shapes:
    return {f"{name}.linear_in.weight": (2 * inner, width), f"{name}.linear_out.weight": (width, inner)}


def write_header(file: Path, shapes: Shapes, dtype: str, size: int) -> None:
    header, end = dict[str, Any](), 0
    for name, shape in shapes.items():
        start, end = end, end + size * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)  # no block of the disk is taken


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_header(tmp_path / "model.safetensors", personaplex(), "BF16", 2)
    with torch.device("meta"):
        codec: Any = MimiModel(MimiConfig())
    write_header(tmp_path / CODEC, kyutai_codec_shapes(codec), "F32", 4)
    (tmp_path / "config.json").write_text('{"model_type": "personaplex", "version": "7b-v1"}')
    return tmp_path


def planned(folder: Path) -> Any:
    return plan(lambda config: MoshiSource(config).network(), StageConfig(folder, dtype="bfloat16", slots=SLOTS))


def test_the_names_are_all_there_and_the_memory_is_known(folder: Path) -> None:
    assert len(personaplex()) == 475
    assert sum(map(math.prod, personaplex().values())) == pytest.approx(8_371_437_000, rel=1e-5)
    found = planned(folder)
    assert 15.4e9 < found.weights < 16.2e9
    session = 2 * 32 * 4096 * 3000 * 2
    assert 0 < found.caches - (SLOTS + 1) * session < 10e6


def test_a_tensor_that_is_missing_is_named(folder: Path) -> None:
    shapes = personaplex()
    del shapes["depformer.layers.3.gating.7.linear_in.weight"]
    write_header(folder / "model.safetensors", shapes, "BF16", 2)
    with pytest.raises(WeightsError, match=r"no tensor depformer\.layers\.3\.gating\.7\.linear_in\.weight"):
        planned(folder)
