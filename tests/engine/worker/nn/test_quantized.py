"""Quantized weights: the four formats against who defines them, and against tensors packed by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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

from benchmarks.memory import Peak
from engine.errors import WeightsError
from engine.worker.nn import quantized
from engine.worker.nn.moe import gathered, grouped, moe, route
from engine.worker.nn.quantized import MOST_PACKED, PACKED_GROUPS, PackedWeight, QuantizedWeight, dense, linear
from engine.worker.nn.weights import SafetensorsCheckpoint, WeightReader
from engine.worker.quantize import packed, rounded
from tests.engine.worker.kernels.weights import KINDS, Kind
from tests.engine.worker.kernels.weights import weight as random_weight

ROWS, WIDTH, GROUP = 48, 64, 16
CPU = torch.device("cpu")
SHARES: list[float] = []
"""Of each product the largest difference, as a share of its largest value."""
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column of each place in a word of AWQ."""


def reader(
    folder: Path, tensors: Mapping[str, Tensor], how: Mapping[str, Any] | None, dtype: Any = None
) -> WeightReader:
    config = {"architectures": ["Any"]} | ({"quantization_config": how} if how is not None else {})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(dict(tensors), folder / "model.safetensors")
    return WeightReader(SafetensorsCheckpoint(folder, "Any"), "", CPU, dtype or torch.float32)


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


LAID = {
    **KINDS, "fp8": Kind(8, signed=True), "fp8 with a table": Kind(8, signed=True, table=True),
}  # fmt: skip


@pytest.mark.parametrize("scales", [torch.float16, torch.float32])
@pytest.mark.parametrize("kind", LAID)
def test_what_is_written_out_in_parts_is_the_same_and_takes_little_meanwhile(
    kind: str, scales: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One matrix as several, and also where the last part is smaller than the others."""
    several = random_weight(6, 40, 64, 16, LAID[kind], scales, torch.bfloat16)
    if kind.startswith("fp8"):
        several = replace(several, numbers=several.numbers.float().to(torch.float8_e4m3fn))
    for weights in (several, several[2], several[torch.tensor([5, 1, 5])]):
        monkeypatch.setattr(quantized, "PART", 1 << 30)
        whole = weights.dense()
        monkeypatch.setattr(quantized, "PART", 64 * 7)
        with Peak() as peak:
            parts = weights.dense()
        assert torch.equal(parts, whole)
        assert parts.nbytes < peak.most <= weights.written_bytes < 2 * parts.nbytes + 64 * 7 * 14


def test_grouped_products_forget_what_is_written_out_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all experts of a layer, as on a GPU that has such products: never both of its weights."""
    up = random_weight(8, 2 * 32, 64, 16, KINDS["int4"], torch.bfloat16, torch.bfloat16)
    down = random_weight(8, 64, 32, 16, KINDS["int4"], torch.bfloat16, torch.bfloat16, seed=1)
    x, experts = weight(2, 5, 64), torch.arange(8)[torch.arange(5) % 8]
    expected = grouped(x, experts, up.dense(), down.dense())
    monkeypatch.setattr(quantized, "PART", 64)
    with Peak() as peak:
        found = grouped(x, experts, up, down)
    assert torch.equal(found, expected)
    assert peak.most < up.numbers.numel() * 2 * 2 + 8 * 1024, "the larger of both, and rows"


def broken(change: Callable[[dict[str, Tensor]], Any]) -> dict[str, Tensor]:
    state, _ = compressed(weight(), *SCHEMES["int4 with zeros"])
    change(state)
    return layer(state)


def groups(**weights: Any) -> dict[str, Any]:
    return asked(config_groups={"group_0": {"targets": ["Linear"], "weights": weights}})


def blocks(shape: tuple[int, ...]) -> dict[str, Tensor]:
    """A layer in fp8 with scales of some shape."""
    return layer({"weight": weight().to(torch.float8_e4m3fn), "weight_scale_inv": torch.ones(shape)})


def fp8(*block: int) -> dict[str, Any]:
    return {"quant_method": "fp8", "weight_block_size": list(block)}


@pytest.mark.parametrize(
    ("tensors", "how", "reason"),
    [
        (
            broken(lambda s: None),
            {"quant_method": "bitsandbytes"},
            "the quantization method bitsandbytes is not supported .supported: awq",
        ),
        (
            broken(lambda s: None),
            {"quant_method": "awq", "version": "marlin"},
            "AWQ checkpoints of the version marlin are not supported",
        ),
        (broken(lambda s: None), asked(format="marlin-24"), "the compressed-tensors format marlin-24 is not supported"),
        (broken(lambda s: None), None, "config.json has no quantization_config"),
        (broken(lambda s: s.pop("weight_scale")), asked(), "no tensor up.weight_scale"),
        (broken(lambda s: s.update(weight_scale=s["weight_scale"][:, :3])), asked(), "does not divide"),
        (
            broken(lambda s: s.update(weight_zero_point=s["weight_zero_point"][:, :2])),
            asked(),
            "its .*zero points have the shape",
        ),
        (
            broken(lambda s: s.update(weight_zero_point=s["weight_zero_point"].repeat(2, 1))),
            asked(),
            "its .*zero points have the shape",
        ),
        (
            broken(lambda s: s.update(weight_packed=s["weight_packed"][:, :4])),
            asked(),
            "2-bit numbers are not supported .only 4 and 8",
        ),
        (broken(lambda s: s.update(weight_packed=s["weight_packed"][:, :1])), asked(), "has .* integers, but"),
        (broken(lambda s: s.update(weight_packed=s["weight_packed"].long())), asked(), "int64, but must be int32"),
        (broken(lambda s: s.update(weight_scale=s["weight_scale"][:, :0])), asked(), r"has the shape \[48, 0\]"),
        (broken(lambda s: None), groups(num_bits=8), "have 4 bits, but config.json says 8"),
        (broken(lambda s: None), groups(num_bits=4, group_size=32), r"\[48, 4\], but config.json implies \[48, 2\]"),
        (broken(lambda s: None), groups(num_bits=4, strategy="channel"), r"config.json implies \[48, 1\]"),
        (broken(lambda s: None), groups(type="float"), "config.json says that they are floats"),
        (broken(lambda s: s.pop("weight_zero_point")), groups(symmetric=False), "its zero points are missing"),
        (broken(lambda s: None), groups(num_bits="four"), "num_bits must be a positive integer .got 'four'"),
        (broken(lambda s: None), asked(config_groups=[4]), "quantization_config cannot be read"),
        (layer({"weight": weight(), "weight_scale": torch.ones(ROWS, 1)}), asked(), "but must be int8 or float8"),
        (blocks((3, 1)), fp8(16, 32), r"its scales have the shape \[3, 1\], but config.json implies \[3, 2\]"),
        (
            blocks((3, 4)),
            fp8(16, 32),
            r"its scales have the shape \[3, 4\], but config.json implies \[3, 2\] for blocks",
        ),
        (blocks((3, 2)), fp8(16, 16), r"its scales have the shape \[3, 2\], but config.json implies \[3, 4\]"),
        (blocks((1,)), fp8(16, 32), r"its scales have the shape \[1\], but config.json implies \[3, 2\]"),
        (blocks((3, 2)), fp8(16, 0), "the block size must be"),
        (broken(lambda s: None), {"quant_method": "awq", "bits": 8}, "8-bit AWQ checkpoints are not supported"),
    ],
)
def test_what_is_quantized_in_another_way_is_one_sentence(
    tensors: dict[str, Tensor], how: dict[str, Any] | None, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(WeightsError, match=reason):
        reader(tmp_path, tensors, how).linear(("up",), (ROWS,), WIDTH)


def test_a_layer_is_held_against_its_own_scheme(tmp_path: Path) -> None:
    """Heads of eight bits beside layers of four, as ``parley quantize`` leaves them; GPTQModel's names of others."""
    four, _ = compressed(weight(), *SCHEMES["int4 in groups"])
    eight, _ = compressed(weight(1), *SCHEMES["int8 packed"])
    both = {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": GROUP}},
        "group_1": {"targets": ["re:(.*\\.)?head"], "weights": {"num_bits": 8, "group_size": GROUP}},
    }
    read = reader(tmp_path, layer(four, "a.up") | layer(eight, "a.head"), asked(config_groups=both)).below("a")
    assert [read.linear((name,), (ROWS,), WIDTH).bits for name in ("up", "head")] == [4, 8]  # type: ignore[union-attr]
    read = reader(tmp_path, layer(four, "a.head") | layer(eight, "a.up"), asked(config_groups=both)).below("a")
    for name, says in (("up", "have 8 bits, but config.json says 4"), ("head", "have 4 bits, but config.json says 8")):
        with pytest.raises(WeightsError, match=says):
            read.linear((name,), (ROWS,), WIDTH)
    tensors, how, _ = gptq(8)
    for dynamic in ({"+:.*up": {"bits": 8}}, {".*up": {"bits": 8}}, {"-:.*head": {}, "+:.*": {"bits": 8}}):
        read = reader(tmp_path, layer(tensors), how | {"bits": 4, "dynamic": dynamic})
        assert isinstance(read.linear(("up",), (ROWS,), WIDTH), QuantizedWeight)
    with pytest.raises(WeightsError, match=r"have 8 bits, but config\.json says 4"):
        reader(tmp_path, layer(tensors), how | {"bits": 4}).linear(("up",), (ROWS,), WIDTH)


def awq() -> tuple[dict[str, Tensor], dict[str, Any], torch.dtype]:
    numbers, zeros = integers(4, ROWS, WIDTH), integers(4, ROWS, WIDTH // GROUP, seed=2)
    scales, order = weight(3, ROWS, WIDTH // GROUP, torch.float16).abs(), (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {"qweight": words(numbers.T, 4, order), "qzeros": words(zeros.T, 4, order), "scales": scales.T}
    return tensors, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}, torch.float16


def gptq(bits: int) -> tuple[dict[str, Tensor], dict[str, Any], torch.dtype]:
    numbers, zeros = integers(bits, ROWS, WIDTH), integers(bits, ROWS, WIDTH // GROUP, seed=2)
    tensors = {
        "qweight": words(numbers, bits).T, "qzeros": words(zeros.T, bits),
        "scales": weight(3, ROWS, WIDTH // GROUP, torch.float16).abs().T, "g_idx": (torch.arange(WIDTH) // GROUP).int(),
    }  # fmt: skip
    return tensors, {"quant_method": "gptq", "bits": bits, "group_size": GROUP}, torch.float16


def in_blocks() -> tuple[dict[str, Tensor], dict[str, Any], torch.dtype]:
    scales = weight(2, 3, 2, torch.float32).abs()
    tensors = {"weight": weight(1).to(torch.float8_e4m3fn), "weight_scale_inv": scales}
    return tensors, fp8(16, 32), torch.float32


def by_scheme(name: str) -> tuple[dict[str, Tensor], dict[str, Any], torch.dtype]:
    format, how = SCHEMES[name]
    return compressed(weight(), format, how)[0], groups(**how) | {"format": format}, torch.bfloat16


WHOLE: dict[str, Callable[[], tuple[dict[str, Tensor], dict[str, Any], torch.dtype]]] = {
    "awq": awq, "gptq 4": lambda: gptq(4), "gptq 8": lambda: gptq(8), "fp8 of transformers": in_blocks,
    **{name: lambda name=name: by_scheme(name) for name in SCHEMES},
}  # fmt: skip
DTYPES = [
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 3, 8, 16, 24, 64, 2**40, 2**70, True, 4.0, "4", None, [], {}, [4]]


def other_shape(found: Tensor, dice: random.Random) -> Tensor:
    """Cut, repeated, turned, flattened or empty; always of another shape."""
    axis = dice.randrange(found.dim()) if found.dim() else 0
    many = found.shape[axis] if found.dim() else 1
    made = dice.choice([
        lambda: found.narrow(axis, 0, dice.randrange(many)) if found.dim() else found[None],
        lambda: torch.cat([found.reshape(found.shape or (1,))] * dice.choice([2, 3, 4]), axis),
        lambda: found.mT if found.dim() == 2 else found[None],
        lambda: found.flatten(),
        lambda: found.unsqueeze(dice.randrange(found.dim() + 1)),
        lambda: found.flatten()[0],
        lambda: found.new_empty(0),
    ])().contiguous()  # fmt: skip
    return made if made.shape != found.shape else other_shape(found, dice)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a JSON value holds numbers."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [place for key, one in pairs for place in places(one, (*at, key))]
    return [at] if isinstance(value, int) and not isinstance(value, bool) else []


def mutated(name: str, dice: random.Random) -> tuple[dict[str, Tensor], dict[str, Any], torch.dtype]:
    tensors, how, dtype = WHOLE[name]()
    how = json.loads(json.dumps(how))
    kind, which = dice.choice(["shape", "dtype", "number"]), dice.choice(sorted(tensors))
    if kind == "shape":
        tensors[which] = other_shape(tensors[which], dice)
    elif kind == "dtype":
        tensors[which] = tensors[which].to(dice.choice(DTYPES))
    elif found := places(how):
        *path, last = dice.choice(found)
        inner = how
        for key in path:
            inner = inner[key]
        inner[last] = dice.choice(NUMBERS)
    return tensors, how, dtype


@pytest.mark.parametrize("name", WHOLE)
def test_a_checkpoint_that_is_damaged_is_refused_or_read_right(name: str, tmp_path: Path) -> None:
    """Shapes, dtypes and numbers of config.json at random: one sentence, or the weight that it was."""
    tensors, how, dtype = WHOLE[name]()
    expected = dense(reader(tmp_path, layer(tensors), how, dtype).linear(("up",), (ROWS,), WIDTH)).float()
    dice, refused = random.Random(name), list[str]()
    for number in range(50):
        tensors, how, dtype = mutated(name, dice)
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            found = dense(reader(folder, layer(tensors), how, dtype).linear(("up",), (ROWS,), WIDTH)).float()
        except WeightsError as error:
            refused.append(str(error))
        else:
            shapes = {one: list(tensor.shape) for one, tensor in tensors.items()}
            assert torch.allclose(found, expected, rtol=0.15, atol=1e-3), f"{number}: {shapes} {how}"
    assert len(refused) > 15
    assert not [reason for reason in refused if "\n" in reason]


def test_layers_that_are_one_product_are_quantized_alike(tmp_path: Path) -> None:
    state, _ = compressed(weight(), *SCHEMES["int4 in groups"])
    other, _ = compressed(weight(1), *SCHEMES["int8 by rows"])
    read = reader(tmp_path, layer(state, "q") | layer(other, "k") | {"v.weight": weight(2)}, asked())
    both = read.linear(("q", "q"), (ROWS, ROWS), WIDTH)
    assert torch.equal(dense(both), torch.cat([dense(read.linear(("q",), (ROWS,), WIDTH))] * 2))
    with pytest.raises(WeightsError, match="q, k: these layers are quantized in different ways"):
        read.linear(("q", "k"), (ROWS, ROWS), WIDTH)
    with pytest.raises(WeightsError, match="q, v: only some of these layers are quantized"):
        read.linear(("q", "v"), (ROWS, ROWS), WIDTH)
    with pytest.raises(WeightsError, match="q to v: only some of these layers are quantized"):
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
    with pytest.raises(WeightsError, match=r"q to down: they have different input orders \(GPTQ"):
        read.linears(("q", "down"), ("",), (ROWS,), WIDTH)


def test_what_is_read_in_full_is_not_taken_from_few_bits(tmp_path: Path) -> None:
    """An encoder's weight in fp8 would be read as numbers without their scale."""
    state, _ = compressed(weight(), *SCHEMES["fp8 by rows"])
    read = reader(
        tmp_path, layer(state, "tower") | {"head.weight": state["weight"].clone()}, asked(format="float-quantized")
    )
    for name in ("tower", "head"):
        with pytest.raises(WeightsError, match=f"{name}.weight is quantized, which is not supported"):
            read(f"{name}.weight", ROWS, WIDTH)


def of_four_bits(rows: int = ROWS, width: int = 2 * WIDTH, group: int = 32, seed: int = 0) -> QuantizedWeight:
    numbers, scales = rounded(weight(seed, rows, width), 4, group)
    halved = packed(numbers, 4).view(torch.uint8)
    return QuantizedWeight(halved, scales, None, None, 4, torch.bfloat16)


@pytest.mark.parametrize("group", PACKED_GROUPS)
@pytest.mark.parametrize("rows", [1, MOST_PACKED, MOST_PACKED + 1])
def test_few_rows_of_four_bits_are_as_exact_without_a_weight_that_is_written_out(rows: int, group: int) -> None:
    """Of more rows it is written out, and the same to the bit as before."""
    plain_ = of_four_bits(width=256, group=group)
    found, x = on_a_processor(plain_), weight(5, rows, 256)
    right = x.double() @ plain_.dense().double().T
    ours, other = (float((linear(x, one).double() - right).abs().max()) for one in (found, plain_))
    assert ours <= 1.5 * other, "one rounding of the answer"
    assert torch.equal(linear(x, found), linear(x, plain_)) == (rows > MOST_PACKED)
    wrong = on_a_processor(of_four_bits(width=256, group=group, seed=1))
    assert float((linear(x, wrong).double() - right).abs().max()) > 100 * other, "the control"


def test_a_packed_weight_takes_rows_of_any_shape_and_a_bias() -> None:
    found, bias = on_a_processor(of_four_bits()), weight(3, 1, ROWS)[0]
    x = weight(2, 6, 2 * WIDTH).unflatten(0, (2, 3)).transpose(0, 1)
    assert torch.equal(linear(x, found), torch.stack([linear(one, found) for one in x]))
    assert torch.equal(linear(x[:, 1], found, bias), linear(x[:, 1].contiguous(), found) + bias)
    assert found.nbytes == of_four_bits().nbytes + found.packed.nbytes + found.pairs.nbytes


def on_a_processor(found: QuantizedWeight) -> PackedWeight:
    made = quantized.packed(found)
    if not isinstance(made, PackedWeight):
        pytest.skip("torch has no quick product of four bits for this processor")
    return made


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": torch.float32}, {"bits": 8}, {"groups": torch.arange(2 * WIDTH) // 32},
        {"zeros": torch.full((ROWS, 4), 8, dtype=torch.uint8)}, {"scales": torch.ones(ROWS, 4)},
        {"scales": torch.ones(ROWS, 8, dtype=torch.bfloat16)},
        {"numbers": torch.zeros(ROWS - 8, WIDTH, dtype=torch.uint8), "scales": torch.ones(ROWS - 8, 4).bfloat16()},
    ],
)  # fmt: skip
def test_what_the_packed_product_would_not_keep_is_written_out(change: dict[str, Any]) -> None:
    other = replace(of_four_bits(), **change)
    assert quantized.packed(other) is other


def test_dense_layers_are_packed_and_experts_are_not(tmp_path: Path) -> None:
    how = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    numbers, scales = rounded(weight(0, ROWS, WIDTH), 4, 32)
    state = layer({"weight_packed": packed(numbers, 4), "weight_scale": scales}, "0.up")
    state |= {name.replace("0.", "1."): one.clone() for name, one in state.items()}
    groups = {"group_0": {"targets": ["Linear"], "weights": how}}
    read = reader(tmp_path, state, asked(format="pack-quantized", config_groups=groups), torch.bfloat16)
    found = read.linear(("0.up",), (ROWS,), WIDTH)
    assert isinstance(found, QuantizedWeight)
    assert isinstance(on_a_processor(of_four_bits()), PackedWeight) == isinstance(found, PackedWeight)
    assert type(read.linears(["0.", "1."], ("up",), (ROWS,), WIDTH)) is QuantizedWeight
