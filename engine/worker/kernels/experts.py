"""Mixture-of-experts products with unquantized weights. Each weight is read once per block of rows.

Sums are float32 and rounded twice: after the gated product, and after scaling with the expert's share.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.by_expert import ROWS, ByExpert
from engine.worker.kernels.products import by_hand, product_type, rounded
from engine.worker.kernels.quantized_experts import LEAST


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile size of a product (outputs and inputs), number of warps, and number of pipeline stages."""

    outputs: int
    inputs: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows per block, and the tiles of both products."""

    rows: int
    up: Tiles
    down: Tiles


LAYOUTS = (
    (8, Layout(ROWS, Tiles(32, 128, 4, 4), Tiles(64, 128, 4, 4))),
    (24, Layout(32, Tiles(64, 128, 4, 3), Tiles(64, 128, 4, 3))),
    (96, Layout(64, Tiles(64, 64, 4, 4), Tiles(128, 64, 8, 3))),
    (None, Layout(128, Tiles(128, 64, 8, 3), Tiles(256, 64, 8, 3))),
)
"""Layouts by the mean number of assignments per expert: the fastest on an H200 with Qwen3-Omni-30B-A3B's shapes."""


@triton.jit
def gate_up_kernel(
    x,
    order,
    weights,
    out,
    experts,
    firsts,
    ends,
    inner,
    width,
    top_k,
    TYPE: tl.constexpr,
    BY_HAND: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Compute SiLU(gate) · value of one block, for OUTPUTS of an expert's ``inner`` columns."""
    block = tl.program_id(0)
    first, end = tl.load(firsts + block), tl.load(ends + block)
    if first < end:
        row, column = first + tl.arange(0, ROWS), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        real, there = row < end, column < inner
        line = tl.load(order + row, mask=real, other=0) // top_k * width
        gates = weights + (tl.load(experts + block).to(tl.int64) * 2 * inner + column) * width
        gate = tl.zeros([ROWS, OUTPUTS], tl.float32)
        value = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for start in range(0, width, INPUTS):
            at = start + tl.arange(0, INPUTS)
            inside = (at < width)[None, :]
            given = tl.load(x + line[:, None] + at[None, :], mask=real[:, None] & inside, other=0).to(TYPE)
            both = there[:, None] & inside
            weight = tl.load(gates[:, None] + at[None, :], mask=both, other=0).to(TYPE)
            gate += tl.dot(given, tl.trans(weight), input_precision="ieee")
            weight = tl.load(gates[:, None] + inner.to(tl.int64) * width + at[None, :], mask=both, other=0).to(TYPE)
            value += tl.dot(given, tl.trans(weight), input_precision="ieee")
        small = tl.exp(-tl.abs(gate))  # exp(-gate) could overflow
        found = gate * (tl.where(gate < 0, small, 1.0) / (1.0 + small)) * value
        tl.store(
            out + row.to(tl.int64)[:, None] * inner + column[None, :],
            rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty),
            mask=real[:, None] & there[None, :],
        )


@triton.jit
def down_kernel(
    x,
    weights,
    shares,
    order,
    out,
    experts,
    firsts,
    ends,
    outputs,
    width,
    TYPE: tl.constexpr,
    BY_HAND: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Compute OUTPUTS outputs for one block of an expert's assignments.

    Each output is scaled by its assignment's share and stored in the original order.
    """
    block = tl.program_id(0)
    first, end = tl.load(firsts + block), tl.load(ends + block)
    if first < end:
        row, column = first + tl.arange(0, ROWS), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        real, there = row < end, column < outputs
        line = row.to(tl.int64) * width
        lines = weights + (tl.load(experts + block).to(tl.int64) * outputs + column) * width
        found = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for start in range(0, width, INPUTS):
            at = start + tl.arange(0, INPUTS)
            inside = (at < width)[None, :]
            given = tl.load(x + line[:, None] + at[None, :], mask=real[:, None] & inside, other=0).to(TYPE)
            weight = tl.load(lines[:, None] + at[None, :], mask=there[:, None] & inside, other=0).to(TYPE)
            found += tl.dot(given, tl.trans(weight), input_precision="ieee")
        place = tl.load(order + row, mask=real, other=0)
        found = found * tl.load(shares + place, mask=real, other=0).to(tl.float32)[:, None]
        tl.store(
            out + place[:, None] * outputs + column[None, :],
            rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty),
            mask=real[:, None] & there[None, :],
        )


def answers(
    x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, layout: Layout | None = None
) -> Tensor:
    """See ``moe.moe``."""
    (count, top_k), (width, inner) = experts.shape, down.shape[1:]
    layout = layout or layout_for(count * top_k / len(gate_up))
    sorted_ = ByExpert.of(experts, len(gate_up), layout.rows)
    middle = torch.empty(count * top_k, inner, device=x.device, dtype=x.dtype)
    out = torch.empty(count * top_k, width, device=x.device, dtype=x.dtype)
    blocks = sorted_.experts, sorted_.firsts, sorted_.ends
    both = {"TYPE": product_type(x.dtype), "BY_HAND": by_hand(), "ROWS": layout.rows}
    gate_up_kernel[len(blocks[0]), triton.cdiv(inner, layout.up.outputs)](
        x.contiguous(), sorted_.order, gate_up, middle, *blocks, inner, width, top_k, **both, **tiles(layout.up, width)
    )
    down_kernel[len(blocks[0]), triton.cdiv(width, layout.down.outputs)](
        middle, down, shares.flatten(), sorted_.order, out, *blocks, width, inner, **both, **tiles(layout.down, inner)
    )
    return out.view(count, top_k, -1).sum(1)


def layout_for(each: float) -> Layout:
    """Return the layout for a mean number of assignments per expert."""
    return next(layout for most, layout in LAYOUTS if most is None or each <= most)


def tiles(one: Tiles, inputs: int) -> dict[str, int]:
    """Return the launch parameters of tiles for a number of inputs."""
    return {
        "OUTPUTS": one.outputs,
        "INPUTS": min(one.inputs, max(LEAST, triton.next_power_of_2(inputs))),
        "num_warps": one.warps,
        "num_stages": one.stages,
    }
