"""What a decode step does between its products, by kernels against torch's own; and whole steps of a stack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.worker.nn import moe
from engine.worker.nn.decoder import TransformerDecoder, rms_norm
from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.sampling_params import BatchSamplingParams, SamplingParams
from engine.worker.nn.slots import CachePositions, KvSlots
from tests.engine.worker.kernels.figures import differing
from tests.engine.worker.nn.test_blocks import CPU, Made

CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Of the largest value: the bar, and two roundings (torch rounds on its way, a kernel at its end)."""


def heavy(*values: Any) -> list[Any]:
    """Values of which the first is tried in every run, and the others where kernels are what is tested."""
    return [values[0], *(pytest.param(one, marks=pytest.mark.kernels) for one in values[1:])]


DTYPES = heavy(*CLOSE)


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    dice = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=dice).to(dtype)


def check(name: str, found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """``expected`` is float32, of the numbers as they lie."""
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    assert differing(name, found, expected) <= CLOSE[dtype] * max(1.0, float(expected.abs().max()))


@pytest.mark.triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", heavy((2, 80), (1, 16), (5, 1024), (2, 2048)), ids=str)
def test_a_sum_and_its_norm(shape: tuple[int, int], dtype: torch.dtype, kernels: Kernels) -> None:
    x, more, weight = (noise(*one, dtype=dtype, seed=i) for i, one in enumerate((shape, shape, shape[1:])))
    total, normed = kernels.add_norm(x, more, weight, 1e-6)
    assert torch.equal(total, x + more), "the sum is torch's to the bit"
    check("add_norm", normed, rms_norm(total.float(), weight.float(), 1e-6), dtype)


@pytest.mark.triton
def test_an_epsilon_that_is_left_out_would_show(kernels: Kernels) -> None:
    """The control: of rows that are nearly nothing the norm is the epsilon's."""
    x, weight = noise(2, 16) * 1e-3, noise(16)
    _, normed = kernels.add_norm(x, torch.zeros_like(x), weight, 1e-6)
    assert (normed - rms_norm(x, weight, 1e-6)).abs().max() <= 1e-5
    assert (normed - rms_norm(x, weight, 0.0)).abs().max() > 1e-2


@pytest.mark.triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", heavy((3, 80), (1, 16), (2, 5, 768), (1, 3072)), ids=str)
def test_a_gated_product(shape: tuple[int, ...], dtype: torch.dtype, kernels: Kernels) -> None:
    x = noise(*shape[:-1], 2 * shape[-1], dtype=dtype) * 4
    check("swiglu", kernels.swiglu(x), moe.swiglu(x.float()), dtype)


@pytest.mark.triton
def test_a_gate_that_is_far_off_overflows_nowhere(kernels: Kernels) -> None:
    assert kernels.swiglu(torch.tensor([[-300.0, 300.0, 2.0, 3.0]])).tolist() == [[0.0, 900.0]]


@pytest.mark.triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("sizes", heavy((5, 2), (4, 1), (60, 6), (128, 8)), ids=str)
def test_a_row_goes_to_its_largest_experts(
    sizes: tuple[int, int], normalise: bool, dtype: torch.dtype, kernels: Kernels
) -> None:
    count, top_k = sizes
    logits = torch.randperm(7 * count, generator=torch.Generator().manual_seed(1)).view(7, count) / count
    logits = (logits - 3).to(torch.float32).to(dtype)
    experts, shares = kernels.route(logits, top_k, normalise)
    expected, theirs = moe.route(logits.float(), torch.eye(count), top_k, normalise)
    if dtype == torch.float32:
        assert torch.equal(experts, expected)
    assert torch.equal(logits.gather(1, experts), logits.gather(1, expected)), "as large as theirs"
    assert all(len(set(row)) == top_k for row in experts.tolist())
    check("route", shares, theirs, dtype)


@pytest.mark.triton
def test_of_two_that_are_as_large_the_first_is_chosen_and_nobody_who_is_not_there(kernels: Kernels) -> None:
    """Also of a row that is no number, or infinite: an expert that there is not would be read from elsewhere."""
    logits = torch.zeros(4, 5)
    logits[1], logits[2, 1:], logits[3, 2] = torch.nan, -torch.inf, torch.nan
    experts, shares = kernels.route(logits, 3, True)
    assert experts[0].tolist() == [0, 1, 2]
    assert all(len(set(row)) == 3 and set(row) <= set(range(5)) for row in experts.tolist())
    assert shares.isnan().all(1).tolist() == [False, True, False, True]
    assert (int(experts[2, 0]), shares[2].tolist()) == (0, [1.0, 0.0, 0.0])


@pytest.mark.triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norms", [True, False], ids=["norms", "none"])
@pytest.mark.parametrize("sizes", heavy((3, 1, 24, 2), (4, 2, 16, 1), (16, 8, 128, 1)), ids=str)
def test_heads_are_normalised_turned_and_written(
    sizes: tuple[int, int, int, int], norms: bool, dtype: torch.dtype, kernels: Kernels
) -> None:
    """Rows of two slots, at angles of their own or at the same, into a layer that is one of several."""
    queries, shared, dim, count = sizes
    heads = noise(2, count, queries + 2 * shared, dim, dtype=dtype)
    pair = (noise(dim, dtype=dtype, seed=2), noise(dim, dtype=dtype, seed=3)) if norms else None
    at = torch.tensor([[19, 18], [3, 4]])[:, :count].contiguous()
    for alone in (True, False):
        positions = torch.tensor([[7.0, 8.0], [3000.0, 40.0]])[: 1 if alone else 2, :count]
        angles = Rope(dim, 1e4, CPU)(positions, dtype)
        keys, values = torch.full((2, 3, shared, 30, dim), torch.nan, dtype=dtype)
        query = kernels.place(heads, pair, 1e-6, angles, at, keys[1], values[1])
        q, k, v = heads.float().transpose(1, 2).split((queries, shared, shared), 1)
        if pair is not None:
            q, k = rms_norm(q, pair[0].float(), 1e-6), rms_norm(k, pair[1].float(), 1e-6)
        cos, sin = (one.float() for one in angles)
        check("place", query, rotate(q, cos, sin), dtype)
        check("place", keys[1][:, at].transpose(0, 1), rotate(k, cos, sin), dtype)
        assert torch.equal(values[1][:, at].transpose(0, 1).float(), v)
        keys[1][:, at], values[1][:, at] = torch.nan, torch.nan
        assert keys.isnan().all()
        assert values.isnan().all(), "nothing else is touched"


@pytest.mark.triton
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("before", heavy(6, 0, 54))
@pytest.mark.parametrize("fresh", [True, False])
def test_a_snake_comes_behind_what_its_slot_remembers(
    fresh: bool, before: int, dtype: torch.dtype, kernels: Kernels
) -> None:
    """Of a signal that is a part of a longer one, as a transposed convolution leaves it; in more than one block."""
    x, past, slots = noise(2, 3, 1100, dtype=dtype)[..., 5:-5], noise(4, 3, before, dtype=dtype), torch.tensor([3, 1])
    alpha, inverse = (noise(3, 1, dtype=dtype, seed=i).exp() for i in (1, 2))
    found = kernels.snake(x, alpha, inverse, None if fresh else past, slots, before)
    head = torch.zeros(2, 3, before) if fresh else past[slots].float()
    wide = x.float()
    check("snake", found, torch.cat((head, wide + inverse * torch.sin(wide * alpha) ** 2), -1), dtype)


DENSE: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "rms_norm_eps": 1e-6, "intermediate_size": 40, "rope_parameters": {"rope_theta": 1e4},
}  # fmt: skip
SPARSE = DENSE | {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True,
    "shared_expert_intermediate_size": 32,
}  # fmt: skip
BIASED = DENSE | {"qkv_bias": True, "head_norms": False}
STACKS = {"experts and a shared one": SPARSE, "dense": DENSE, "biases and no norms of heads": BIASED}
"""The layers of Qwen3-Omni's talker, of Qwen3-TTS and code predictors, of Qwen2.5-Omni."""


def made(kernels: Kernels | None) -> Any:
    read = Made(3)
    read.kernels = kernels  # type: ignore[assignment]
    return read


@pytest.mark.triton
@pytest.mark.parametrize("name", heavy(*STACKS))
@pytest.mark.parametrize("in_place", heavy(True, False))
def test_a_step_of_a_stack(name: str, in_place: bool, kernels: Kernels) -> None:
    """Two steps one behind the other: the second sees what the first wrote."""
    found = list[Tensor]()
    for decoder in (TransformerDecoder(made(one), SimpleNamespace(**STACKS[name])) for one in (None, kernels)):
        cache = decoder.cache(4, 20)
        for step in range(2):
            starts = [9 + step, step]
            angles = decoder.rope(torch.tensor(starts)[:, None].float(), torch.float32)
            where: Any = CachePositions.of(cache, [3, 1], starts, 1)
            if in_place:
                where = decoder.one_row(cache, torch.tensor([3, 1]), torch.tensor(starts), 20)
            found += [decoder.step(noise(2, 1, 48, seed=step), angles, where, cache), cache.keys, cache.values]
    for ours, plain in zip(found[6:], found[:6], strict=True):
        check("step", ours, plain, torch.float32)


@pytest.mark.triton
def test_a_frame_of_the_code_predictor(kernels: Kernels) -> None:
    """Its first pass has two rows a slot, and all slots have the same angles."""
    config = SimpleNamespace(**DENSE, num_code_groups=3, vocab_size=50)
    hidden, first = noise(2, 2, 48)
    params = BatchSamplingParams.of([SamplingParams(seed, seed % 2 == 0) for seed in range(2)], CPU)
    found = list[Tensor]()
    for one in (None, kernels):
        predictor = Predictor(made(one), config, 4, stream=2)
        codes, total = predictor.frame(hidden, first, params, torch.arange(2))
        found += [codes, total, predictor.cache.keys, predictor.cache.values]
    assert torch.equal(found[4], found[0])
    for ours, plain in zip(found[5:], found[1:4], strict=True):
        check("frame", ours, plain, torch.float32)


def test_without_kernels_a_step_is_what_a_forward_is() -> None:
    decoder, cache = (
        TransformerDecoder(made(None), SimpleNamespace(**SPARSE)),
        KvSlots(2, 2, 2, 8, 16, CPU, torch.float32),
    )
    angles = decoder.rope(torch.zeros(2, 1), torch.float32)
    where = CachePositions.of(cache, [0, 1], [0, 0], 1)
    one, other = (
        decoder.step(noise(2, 1, 48), angles, where, cache),
        decoder.forward(noise(2, 1, 48), angles, where, cache),
    )
    assert torch.equal(one, other[0])
