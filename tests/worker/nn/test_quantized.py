"""Quantized weights: the four formats against who defines them, and against tensors packed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compressed_tensors import CompressionFormat
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.moe import gathered, moe, route
from engine.worker.nn.quantized import QuantizedWeight, dense, linear
from engine.worker.nn.weights import Checkpoint, Reader
from engine.worker.quantize import packed, rounded

ROWS, WIDTH, GROUP = 48, 64, 16
CPU = torch.device("cpu")
SHARES: list[float] = []
"""Of each product the largest difference, as a share of its largest value."""
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column of each place in a word of AWQ."""


def reader(folder: Path, tensors: Mapping[str, Tensor], how: Mapping[str, Any] | None, dtype: Any = None) -> Reader:
    config = {"architectures": ["Any"]} | ({"quantization_config": how} if how is not None else {})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(dict(tensors), folder / "model.safetensors")
    return Reader(Checkpoint(folder, "Any"), "", CPU, dtype or torch.float32)


def layer(found: Mapping[str, Tensor], name: str = "up") -> dict[str, Tensor]:
    return {f"{name}.{key}": value.contiguous() for key, value in found.items()}


def weight(seed: int = 0, rows: int = ROWS, width: int = WIDTH, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(dtype)


def asked(**more: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", **more}


SCHEMES: dict[str, tuple[str, dict[str, Any]]] = {
    "int4 in groups": ("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": GROUP}),
    "int4 with zeros": (
        "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": GROUP, "symmetric": False},
    ),
    "int4 by rows": ("pack-quantized", {"num_bits": 4, "strategy": "channel"}),
    "int8 packed": ("pack-quantized", {"num_bits": 8, "strategy": "group", "group_size": GROUP}),
    "int8 packed with zeros": ("pack-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
    "int8 by rows": ("int-quantized", {"num_bits": 8, "strategy": "channel"}),
    "int8 with zeros": ("int-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
    "fp8 by rows": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}),
    "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "fp8 in blocks": (
        "float-quantized", {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]},
    ),
}  # fmt: skip


def compressed(original: Tensor, format: str, how: Mapping[str, Any]) -> tuple[dict[str, Tensor], Tensor]:
    """A layer's tensors as compressed-tensors writes them, and the weight that it makes of them."""
    wanted = QuantizationArgs(**how)
    scheme = QuantizationScheme(targets=["Linear"], weights=wanted, format=CompressionFormat(format))
    rows, width = original.shape
    match how["strategy"]:
        case "group":
            parts, shape = original.unflatten(1, (-1, GROUP)), (rows, width // GROUP)
        case "channel":
            parts, shape = original[:, None], (rows, 1)
        case "block":
            parts = original.unflatten(0, (-1, 16)).unflatten(2, (-1, 32)).transpose(1, 2).flatten(2)
            shape = (rows // 16, width // 32)
        case _:
            parts, shape = original.flatten()[None, None], (1,)
    scale, zero = calculate_qparams(parts.amin(-1), parts.amax(-1), wanted)
    state = {"weight": original, "weight_scale": scale.view(shape), "weight_zero_point": zero.view(shape)}
    compressor: Any = BaseCompressor.get_value_from_registry(format)
    state = compressor.compress(state, scheme)
    return state, compressor.decompress(state, scheme)["weight"]


@pytest.mark.parametrize("name", SCHEMES)
def test_a_weight_is_what_compressed_tensors_makes_of_it(name: str, tmp_path: Path) -> None:
    format, how = SCHEMES[name]
    state, expected = compressed(weight(), format, how)
    groups = {"group_0": {"targets": ["Linear"], "weights": how}}
    read = reader(tmp_path, layer(state), asked(format=format, config_groups=groups), torch.bfloat16)
    found = read.linear(("up",), (ROWS,), WIDTH)
    assert isinstance(found, QuantizedWeight)
    assert torch.equal(found.dense(), expected.to(torch.bfloat16))
    assert float((found.dense() - weight()).abs().max()) < 0.6, "it stands for the weight that was quantized"
    assert found.nbytes < weight().nbytes


@pytest.mark.parametrize("name", [name for name in SCHEMES if "int4" in name])
def test_halves_that_are_swapped_are_another_weight(name: str, tmp_path: Path) -> None:
    """The control of the one before."""
    format, how = SCHEMES[name]
    state, expected = compressed(weight(), format, how)
    bytes_ = state["weight_packed"].view(torch.uint8)
    state["weight_packed"] = ((bytes_ << 4) | (bytes_ >> 4)).view(torch.int32)
    found = reader(tmp_path, layer(state), asked(format=format), torch.bfloat16).linear(("up",), (ROWS,), WIDTH)
    assert not torch.allclose(dense(found), expected, atol=0.5)


def integers(bits: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randint(0, 1 << bits, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int64)


def words(numbers: Tensor, bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """Numbers [rows, columns] in words of 32 bits along the columns, the first one lowest; bit by bit, as a loop."""
    a_word = 32 // bits
    found = torch.zeros(numbers.shape[0], numbers.shape[1] // a_word, dtype=torch.int64)
    for place, column in enumerate(order or range(a_word)):
        found |= numbers[:, column::a_word] << (bits * place)
    return torch.where(found >= 1 << 31, found - (1 << 32), found).to(torch.int32)


def plain(numbers: Tensor, scales: Tensor, zeros: Tensor, groups: Tensor) -> Tensor:
    """The definition: each number less its group's zero, times its group's scale; in float64."""
    return (numbers - zeros[:, groups]).double() * scales.double()[:, groups]


def test_awq_is_read_as_it_is_packed(tmp_path: Path) -> None:
    """In a word of eight columns stand the even ones first, each beside the odd one behind it."""
    numbers, zeros = integers(4, ROWS, WIDTH), integers(4, ROWS, WIDTH // GROUP, seed=2)
    scales = weight(3, ROWS, WIDTH // GROUP, torch.float16).abs()
    tensors = {"qweight": words(numbers.T, 4, AWQ_ORDER), "qzeros": words(zeros.T, 4, AWQ_ORDER), "scales": scales.T}
    how = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    found = dense(reader(tmp_path, layer(tensors), how, torch.float16).linear(("up",), (ROWS,), WIDTH))
    groups = torch.arange(WIDTH) // GROUP
    assert torch.equal(found, plain(numbers, scales, zeros, groups).to(torch.float16))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("layout", ["gptq", "gptq_v2"])
@pytest.mark.parametrize("ordered", [False, True])
def test_gptq_is_read_as_it_is_packed(bits: int, layout: str, ordered: bool, tmp_path: Path) -> None:
    """Zeros are stored less one by the first layout; inputs are of any group where they were ordered by activation."""
    numbers = integers(bits, ROWS, WIDTH)
    zeros = 1 + integers(bits, ROWS, WIDTH // GROUP, seed=2) % ((1 << bits) - 1)
    scales = weight(3, ROWS, WIDTH // GROUP, torch.float16).abs()
    groups = torch.arange(WIDTH) // GROUP
    groups = groups[torch.randperm(WIDTH, generator=torch.Generator().manual_seed(4))] if ordered else groups
    tensors = {
        "qweight": words(numbers, bits).T, "qzeros": words((zeros - int(layout == "gptq")).T, bits), "scales": scales.T,
        "g_idx": groups.to(torch.int32),
    }  # fmt: skip
    how = {"quant_method": "gptq", "bits": bits, "checkpoint_format": layout, "desc_act": ordered}
    found = reader(tmp_path, layer(tensors), how, torch.float16).linear(("up",), (ROWS,), WIDTH)
    assert torch.equal(dense(found), plain(numbers, scales, zeros, groups).to(torch.float16)), "rounded once"
    assert isinstance(found, QuantizedWeight)
    assert (found.groups is not None) == ordered


def test_fp8_of_transformers_has_a_scale_for_each_block(tmp_path: Path) -> None:
    """The last blocks are smaller than the others."""
    rows, width, block = 40, 48, (16, 32)
    numbers = weight(1, rows, width).to(torch.float8_e4m3fn)
    scales = weight(2, 3, 2, torch.float32).abs()
    how = {"quant_method": "fp8", "weight_block_size": list(block)}
    found = reader(tmp_path, layer({"weight": numbers, "weight_scale_inv": scales}), how).linear(
        ("up",), (rows,), width
    )
    spread = scales.repeat_interleave(16, 0)[:rows].repeat_interleave(32, 1)[:, :width]
    assert torch.equal(dense(found), numbers.float() * spread)


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    """Print, at the end of all, how far products were from those in float64."""
    yield
    print(f"products of quantized weights: within {max(SHARES, default=0.0):.1e} of the largest")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([4, 8]), st.sampled_from([8, 16, 64]), st.integers(1, 5))
def test_a_product_is_that_with_the_weight_written_out(seed: int, bits: int, group: int, count: int) -> None:
    original = weight(seed, dtype=torch.float32)
    numbers, scales = rounded(original, bits, group)
    weights = QuantizedWeight(packed(numbers, bits).view(torch.uint8), scales, None, None, bits, torch.float32)
    x = weight(seed + 1, count, WIDTH, torch.float32)
    expected = F.linear(x.double(), (numbers.double().unflatten(1, (-1, group)) * scales[..., None]).flatten(1))
    SHARES.append(float((linear(x, weights).double() - expected).abs().max() / expected.abs().max()))
    assert SHARES[-1] <= 1e-3


def test_a_number_is_the_nearest_and_a_scale_the_best_of_those_tried() -> None:
    original = weight(5, dtype=torch.float32)
    numbers, scales = rounded(original, 4, GROUP)
    made = (numbers.unflatten(1, (-1, GROUP)) * scales[..., None]).flatten(1)
    largest = original.unflatten(1, (-1, GROUP)).abs().amax(-1)
    simple = largest / 7.5
    tried = (original.unflatten(1, (-1, GROUP)) / simple[..., None]).round().clamp(-8, 7) * simple[..., None]
    assert float((made - original).pow(2).mean()) < 0.98 * float((tried.flatten(1) - original).pow(2).mean())
    inner = numbers.abs() < 7
    half = (scales / 2).repeat_interleave(GROUP, 1)
    assert bool(((made - original).abs() <= half * 1.001)[inner].all())


def test_a_group_of_nothing_but_zeros_stays_so() -> None:
    numbers, scales = rounded(torch.zeros(8, 32), 4, 16)
    assert not numbers.any()
    assert torch.isfinite(scales).all()


def test_experts_answer_as_those_that_are_written_out() -> None:
    """By any of the ways: those that are chosen one by one, or gathered in parts."""
    made = [rounded(weight(seed, 2 * GROUP, WIDTH, torch.float32), 4, GROUP) for seed in range(8)]
    numbers = torch.stack([packed(one, 4).view(torch.uint8) for one, _ in made])
    up = QuantizedWeight(numbers, torch.stack([scales for _, scales in made]), None, None, 4, torch.float32)
    made = [rounded(weight(seed, WIDTH, GROUP, torch.float32), 8, GROUP) for seed in range(8, 16)]
    numbers = torch.stack([packed(one, 8).view(torch.uint8) for one, _ in made])
    down = QuantizedWeight(numbers, torch.stack([scales for _, scales in made]), None, None, 8, torch.float32)
    x = weight(20, 50, WIDTH, torch.float32)
    experts, shares = route(x, weight(21, 8, WIDTH, torch.float32), 2, True)
    assert torch.equal(moe(x, experts, shares, up, down), moe(x, experts, shares, up.dense(), down.dense()))
    parts = gathered(x, experts, up, down)
    assert torch.allclose(parts, gathered(x, experts, up.dense(), down.dense()), atol=1e-5)


def broken(change: Callable[[dict[str, Tensor]], Any]) -> dict[str, Tensor]:
    state, _ = compressed(weight(), *SCHEMES["int4 with zeros"])
    change(state)
    return layer(state)


@pytest.mark.parametrize(
    ("tensors", "how", "reason"),
    [
        (broken(lambda s: None), {"quant_method": "bitsandbytes"}, "quantized by bitsandbytes; read are awq"),
        (broken(lambda s: None), {"quant_method": "awq", "version": "marlin"}, "AWQ's marlin kernels; read is gemm"),
        (broken(lambda s: None), asked(format="marlin-24"), "format is marlin-24"),
        (broken(lambda s: None), None, "config.json does not say how"),
        (broken(lambda s: s.pop("weight_scale")), asked(), "no tensor up.weight_scale"),
        (broken(lambda s: s.update(weight_scale=s["weight_scale"][:, :3])), asked(), "no group size of"),
        (broken(lambda s: s.update(weight_zero_point=s["weight_zero_point"][:, :2])), asked(), "its zeros are"),
        (broken(lambda s: s.update(weight_packed=s["weight_packed"][:, :6])), asked(), "config.json wants"),
        (layer({"weight": weight(), "weight_scale": torch.ones(ROWS, 1)}), asked(), "not of eight bits"),
    ],
)
def test_what_is_quantized_in_another_way_is_one_sentence(
    tensors: dict[str, Tensor], how: dict[str, Any] | None, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=reason):
        reader(tmp_path, tensors, how).linear(("up",), (ROWS,), WIDTH)


def test_layers_that_are_one_product_are_quantized_alike(tmp_path: Path) -> None:
    state, _ = compressed(weight(), *SCHEMES["int4 in groups"])
    other, _ = compressed(weight(1), *SCHEMES["int8 by rows"])
    read = reader(tmp_path, layer(state, "q") | layer(other, "k") | {"v.weight": weight(2)}, asked())
    both = read.linear(("q", "q"), (ROWS, ROWS), WIDTH)
    assert torch.equal(dense(both), torch.cat([dense(read.linear(("q",), (ROWS,), WIDTH))] * 2))
    with pytest.raises(WeightsError, match="q, k: they are quantized in several ways"):
        read.linear(("q", "k"), (ROWS, ROWS), WIDTH)
    with pytest.raises(WeightsError, match="q, v: some of them are quantized, and others not"):
        read.linear(("q", "v"), (ROWS, ROWS), WIDTH)
    with pytest.raises(WeightsError, match="q to v: some of them are quantized, and others not"):
        read.linears(("q", "v"), ("",), (ROWS,), WIDTH)


def test_experts_whose_inputs_have_orders_of_their_own_are_refused_by_their_cause(tmp_path: Path) -> None:
    """As GPTQ orders them with desc_act; layers that eat the same rows have one order, and are read."""
    numbers, scales = integers(4, ROWS, WIDTH), weight(3, ROWS, WIDTH // GROUP, torch.float16).abs()
    tensors: dict[str, Tensor] = {}
    for name, seed in (("q", 4), ("k", 4), ("down", 5)):
        groups = (torch.arange(WIDTH) // GROUP)[torch.randperm(WIDTH, generator=torch.Generator().manual_seed(seed))]
        tensors |= layer({
            "qweight": words(numbers, 4).T, "scales": scales.T, "g_idx": groups.to(torch.int32),
            "qzeros": words(integers(4, ROWS, WIDTH // GROUP, seed=2).T, 4),
        }, name)  # fmt: skip
    read = reader(tmp_path, tensors, {"quant_method": "gptq", "desc_act": True}, torch.float16)
    assert torch.equal(*dense(read.linear(("q", "k"), (ROWS, ROWS), WIDTH)).chunk(2))
    with pytest.raises(WeightsError, match=r"q to down: each has its inputs in an order of its own \(GPTQ"):
        read.linears(("q", "down"), ("",), (ROWS,), WIDTH)


def test_what_is_read_in_full_is_not_taken_from_few_bits(tmp_path: Path) -> None:
    """An encoder's weight in fp8 would be read as numbers without their scale."""
    state, _ = compressed(weight(), *SCHEMES["fp8 by rows"])
    read = reader(
        tmp_path, layer(state, "tower") | {"head.weight": state["weight"].clone()}, asked(format="float-quantized")
    )
    for name in ("tower", "head"):
        with pytest.raises(
            WeightsError, match=f"{name}.weight is quantized, and this part of the model is read in full"
        ):
            read(f"{name}.weight", ROWS, WIDTH)
