"""Products with the quantized weights of experts by a kernel, against weights that are written out."""

from __future__ import annotations

import pytest
import torch

from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.moe import moe, route
from engine.worker.nn.quantized import QuantizedWeight
from tests.engine.worker.kernels.figures import differing
from tests.engine.worker.kernels.weights import KINDS, Kind, weight

HALF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 0.0}
"""What a number is rounded by at most, of itself."""


def check(
    rows: int, kind: Kind, scales: torch.dtype, dtype: torch.dtype, kernels: Kernels,
    count: int = 6, width: int = 48, inner: int = 32, top_k: int = 3,
) -> None:  # fmt: skip
    """Within 1e-5 of the largest in float32; in another dtype within what rounding each answer twice may do."""
    gate_up = weight(count, 2 * inner, width, 16, kind, scales, dtype, 1)
    down = weight(count, width, inner, 16, kind, scales, dtype, 2)
    dice = torch.Generator().manual_seed(rows)
    x, router = torch.randn(rows, width, generator=dice).to(dtype), torch.randn(count, width, generator=dice).to(dtype)
    experts, shares = route(x, router, top_k, True)
    assert kernels.takes(gate_up)
    found = kernels.experts(x, experts, shares, gate_up, down)
    expected = moe(x, experts, shares, gate_up, down)
    assert found.dtype == dtype
    assert differing("experts", found, expected) <= (1e-5 + 4 * HALF[dtype]) * expected.abs().max()


@pytest.mark.triton
@pytest.mark.parametrize("name", KINDS)
def test_every_layout_is_what_it_would_be_written_out(name: str, kernels: Kernels) -> None:
    check(5, KINDS[name], torch.bfloat16, torch.float32, kernels)


@pytest.mark.triton
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("scales", [torch.bfloat16, torch.float16])
def test_weights_are_those_that_are_written_out_to_the_bit(name: str, scales: torch.dtype, kernels: Kernels) -> None:
    """Rows of an identity matrix ask for every weight by itself."""
    from engine.worker.kernels.by_expert import ByExpert
    from engine.worker.kernels.quantized_experts import multiplied

    found = weight(2, 24, 32, 16, KINDS[name], scales, torch.bfloat16)
    both, unit = torch.arange(2).repeat(32, 1), torch.eye(32, dtype=torch.bfloat16)
    ours = multiplied(unit, 2, found, ByExpert.of(both, 2))
    assert torch.equal(ours.view(2, 32, 24).transpose(1, 2), found.dense())


@pytest.mark.triton
def test_halves_that_are_swapped_would_show(kernels: Kernels) -> None:
    """The control."""
    right = weight(2, 16, 32, 16, KINDS["int4"], torch.float32, torch.float32)
    swapped = QuantizedWeight(
        (right.numbers << 4) | (right.numbers >> 4), right.scales, right.zeros, right.groups, 4, right.dtype
    )
    dice = torch.Generator().manual_seed(1)
    x, experts, shares = torch.randn(1, 32, generator=dice), torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1)
    down = weight(2, 32, 16 // 2, 8, KINDS["int4"], torch.float32, torch.float32)
    expected = moe(x, experts, shares, right, down)
    assert (kernels.experts(x, experts, shares, right, down) - expected).abs().max() <= 1e-5 * expected.abs().max()
    found = kernels.experts(x, experts, shares, swapped, down)
    assert (found - expected).abs().max() > 1e-2 * expected.abs().max()


@pytest.mark.triton
@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("asked", [(2, 2), (700, 3), (3000, 1)])
def test_blocks_of_rows_belong_to_one_expert_each(asked: tuple[int, int], rows: int, kernels: Kernels) -> None:
    """In the order of experts, and of one as they came; some have no answer, and one has several blocks."""
    from engine.worker.kernels.by_expert import ByExpert

    count, dice = 9, torch.Generator().manual_seed(sum(asked))
    experts = torch.randint(0, count - 1, asked, generator=dice) ** 2 % (count - 1)
    found = ByExpert.of(experts, count, rows)
    assert torch.equal(found.order, experts.flatten().argsort(stable=True))
    whose = experts.flatten()[found.order].tolist()
    blocks = zip(*(one.tolist() for one in (found.experts, found.firsts, found.ends)), strict=True)
    real = [(expert, range(first, min(first + rows, end))) for expert, first, end in blocks if first < end]
    assert [at for _, block in real for at in block] == list(range(len(whose))), "each answer once, in order"
    assert all(whose[at] == expert for expert, block in real for at in block)
    assert len(real) == sum(-(-whose.count(expert) // rows) for expert in range(count)), "as few as there may be"


def test_weights_of_another_kind_are_not_taken() -> None:
    pytest.importorskip("triton")
    from engine.worker.kernels.quantized_experts import takes

    floats = QuantizedWeight(
        torch.zeros(1, 8, 8, dtype=torch.float8_e4m3fn), torch.ones(1, 8, 1), None, None, 8, torch.float32
    )
    assert not takes(floats)
    assert takes(weight(1, 8, 16, 8, KINDS["int8"], torch.float32, torch.float32))


@pytest.mark.triton
@pytest.mark.kernels
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_sizes(rows: int, dtype: torch.dtype, name: str, kernels: Kernels) -> None:
    check(rows, KINDS[name], torch.bfloat16, dtype, kernels)
    check(rows, KINDS[name], torch.float16, dtype, kernels, count=16, width=80, inner=48, top_k=1)


@pytest.mark.triton
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.kernels)])
@pytest.mark.parametrize("rows", [1, 16, 40, 200, 300])
def test_weights_that_are_written_out(rows: int, dtype: torch.dtype, kernels: Kernels) -> None:
    """Of one row, and of so many that each layout has its turn, and an expert's are several blocks."""
    dice = torch.Generator().manual_seed(rows)
    shapes = (rows, 80), (5, 80), (5, 2 * 40, 80), (5, 80, 40)
    x, router, gate_up, down = ((torch.randn(one, generator=dice) / one[-1] ** 0.5).to(dtype) for one in shapes)
    x *= 80**0.5
    experts, shares = route(x, 4 * router, 2, True)
    found = kernels.experts(x, experts, shares, gate_up, down)
    expected = moe(x.float(), experts, shares.float(), gate_up.float(), down.float())
    assert found.dtype == dtype
    assert differing("experts, written out", found, expected) <= (1e-5 + 6 * HALF[dtype]) * expected.abs().max()
    other = kernels.experts(x, experts.flip(1), shares, gate_up, down).float()
    assert (other - expected).abs().max() > 0.1 * expected.abs().max(), "the control: shares of the wrong experts"


@pytest.mark.triton
@pytest.mark.kernels
def test_more_inputs_than_one_product_takes(kernels: Kernels) -> None:
    check(3, KINDS["int4"], torch.float32, torch.float32, kernels, width=272, inner=160)
    check(3, KINDS["int8"], torch.float32, torch.float32, kernels, width=272, inner=160)
