"""The codec, held against transformers' Mimi with the same weights: whole recordings and frame by frame."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import MimiConfig, MimiModel

from engine.errors import WeightsError
from engine.worker.nn.conv import ConvBatch
from engine.worker.nn.mimi import DEFAULTS, MimiDecoder, MimiEncoder, mimi_sizes
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader
from tests.oracles.tiny_moshi import flat
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
GROUPS = 5
SLOTS = 3


@dataclass(frozen=True, slots=True)
class Made:
    theirs: Any
    sizes: Any
    encoder: MimiEncoder
    decoder: MimiDecoder


@pytest.fixture(params=[*SIZES])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """The reference's codec, and ours."""
    config = BASE | SIZES[request.param]
    theirs: Any = MimiModel(MimiConfig(**config)).eval().requires_grad_(False)
    draw, tensors = torch.Generator().manual_seed(0), dict[str, Tensor]()
    for name, value in theirs.state_dict().items():
        if "initialized" not in name:
            value.copy_(_weights(name, tuple(value.shape), draw))
            tensors[f"codec.{flat(name)}"] = value.contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"architectures": ["Tiny"]}')
    sizes, read = mimi_sizes(json.loads(json.dumps(config)), "codec"), reader(tmp_path)
    return Made(theirs, sizes, MimiEncoder(read, sizes, GROUPS, SLOTS), MimiDecoder(read, sizes, GROUPS, SLOTS))


def reader(folder: Path) -> WeightReader:
    return WeightReader(SafetensorsCheckpoint(folder, "Tiny"), "codec.", torch.device("cpu"), torch.float32)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-1]))


@pytest.mark.parametrize("samples", [1, 1919, 1920, 1921, 24_000, 48_123])
def test_codes_of_a_recording_are_those_of_the_reference(made: Made, samples: int) -> None:
    wave, first = noise(samples), torch.zeros(1, dtype=torch.long)
    expected = made.theirs.encode(wave[None, None], return_dict=True).audio_codes[0, :GROUPS].T
    found = made.encoder(wave[None], first, ConvBatch(first, fresh=True))[0]
    assert found.shape == expected.shape
    assert torch.equal(found, expected)
    assert samples < 24_000 or len(found.unique()) > 20


@pytest.mark.parametrize("cut", [1, 3])
def test_streams_are_what_the_reference_makes_of_the_whole(made: Made, cut: int) -> None:
    """Two streams, one of which begins later, in other slots."""
    count, size = 24, made.sizes.frame_samples
    waves = noise(2, count * size)
    codes = made.theirs.encode(waves[:, None], return_dict=True).audio_codes[:, :GROUPS].transpose(1, 2)
    sound = made.theirs.decode(codes.transpose(1, 2)).audio_values[:, 0]
    found: list[list[Tensor]] = [[], []]
    heard: list[list[Tensor]] = [[], []]
    for now in range(0, count + 6, cut):
        here = [(i, now - 6 * i) for i in range(2) if 0 <= now - 6 * i < count]
        starts = torch.tensor([at for _, at in here])
        piece = ConvBatch(torch.tensor([2 - i for i, _ in here]), fresh=False)
        pieces = torch.stack([waves[i, at * size : (at + cut) * size] for i, at in here])
        encoded = made.encoder(pieces, starts, piece)
        decoded = made.decoder(torch.stack([codes[i, at : at + cut] for i, at in here]), starts, piece)
        for (i, _), one, wave in zip(here, encoded, decoded, strict=True):
            found[i].append(one)
            heard[i].append(wave)
    for i in range(2):
        assert torch.equal(torch.cat(found[i]), codes[i])
        torch.testing.assert_close(torch.cat(heard[i]), sound[i], rtol=0, atol=1e-4)


def test_fields_that_a_file_leaves_out_have_the_defaults_of_the_reference() -> None:
    theirs = MimiConfig()
    for name, value in DEFAULTS.items():
        other = getattr(theirs, name)
        if name == "rope_parameters":
            assert other["rope_theta"] == value["rope_theta"]
        elif name != "head_dim":  # the reference computes it
            assert (list(value) if isinstance(value, tuple) else value) == other, name


@pytest.mark.parametrize("field", ["use_conv_shortcut", "attention_bias"])
def test_what_no_real_checkpoint_has_is_refused(field: str) -> None:
    with pytest.raises(WeightsError, match=f"here.{field}=True is not supported"):
        mimi_sizes({field: True}, "here")


def test_a_codec_with_too_few_codebooks_is_refused(made: Made, tmp_path: Path) -> None:
    sizes = mimi_sizes(BASE | {"num_quantizers": 3}, "here")
    with pytest.raises(WeightsError, match="the codec has 3 codebooks, but the model needs 5"):
        MimiDecoder(reader(tmp_path), sizes, GROUPS, SLOTS)
