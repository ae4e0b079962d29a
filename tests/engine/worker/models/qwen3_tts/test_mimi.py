"""The codec's encoder, held against transformers' Mimi with the same weights."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import MimiConfig, MimiModel

from engine.errors import WeightsError
from engine.worker.models.qwen3_tts.mimi import DEFAULTS, MimiEncoder
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader
from tests.oracles.tiny_qwen3_tts import _weights

SIZES: dict[str, dict[str, Any]] = {
    "plain": {},
    "wide books": {"vector_quantization_hidden_dimension": 32, "codebook_dim": 32, "num_semantic_quantizers": 2},
    "deep": {"num_residual_layers": 2, "num_hidden_layers": 3, "compress": 1, "kernel_size": 5, "sliding_window": 9},
    "few keys": {"num_key_value_heads": 1, "upsampling_ratios": [4, 5], "frame_rate": 600.0, "rope_theta": 500.0},
}
BASE: dict[str, Any] = {
    "hidden_size": 32, "num_filters": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "intermediate_size": 64, "codebook_size": 64, "codebook_dim": 16, "vector_quantization_hidden_dimension": 16,
    "num_quantizers": 6, "upsample_groups": 32,
}  # fmt: skip
Made = tuple[Any, MimiEncoder]


@pytest.fixture(params=[*SIZES])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """The reference's encoder, and ours."""
    config = BASE | SIZES[request.param]
    theirs: Any = MimiModel(MimiConfig(**config)).eval().requires_grad_(False)
    draw, tensors = torch.Generator().manual_seed(0), dict[str, torch.Tensor]()
    for name, value in theirs.state_dict().items():
        if name.startswith(("encoder.", "quantizer.")) and "initialized" not in name:
            value.copy_(_weights(name, tuple(value.shape), draw))
            old = re.sub(r"^encoder\.(encoder_transformer|downsample)", r"\1", name).replace("encoder_seanet.", "")
            tensors[f"encoder.{old}"] = value.contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["Tiny"]}')
    return theirs, MimiEncoder(reader(tmp_path), json.loads(json.dumps(config)), 5)


def reader(folder: Path) -> WeightReader:
    return WeightReader(SafetensorsCheckpoint(folder, "Tiny"), "encoder.", torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("samples", [1, 1919, 1920, 1921, 24_000, 48_123])
def test_codes_are_those_of_the_reference(made: Made, samples: int) -> None:
    theirs, ours = made
    wave = torch.randn(samples, generator=torch.Generator().manual_seed(samples))
    expected = theirs.encode(wave[None, None], return_dict=True).audio_codes[0, :5]
    found = ours(wave)
    assert found.shape == expected.shape
    assert torch.equal(found, expected)
    assert samples < 24_000 or len(found.unique()) > 20


def test_fields_that_a_file_leaves_out_have_the_defaults_of_the_reference() -> None:
    theirs = MimiConfig()
    for name, value in DEFAULTS.items():
        other = getattr(theirs, name)
        if name == "rope_parameters":
            assert other["rope_theta"] == value["rope_theta"]
        elif name != "head_dim":  # the reference computes it
            assert (list(value) if isinstance(value, tuple) else value) == other, name


@pytest.mark.parametrize("field", ["use_conv_shortcut", "attention_bias"])
def test_what_no_real_checkpoint_has_is_refused(tmp_path: Path, field: str, made: Callable[..., Any]) -> None:
    with pytest.raises(WeightsError, match=f"{tmp_path}: encoder_config.{field}=True is not supported"):
        MimiEncoder(reader(tmp_path), {field: True}, 5)
