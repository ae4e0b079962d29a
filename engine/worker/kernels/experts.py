"""Experts whose weights are written out, for the few rows of a decode step or a prompt: each weight is read once for
all rows that asked for its expert.

Rows come sorted by expert and are cut into blocks that belong to one expert each, as in ``quantized_experts``. Sums are
float32, and rounded once: behind the gated product, and behind an answer's share.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, what it makes of a function is unknown, and cannot be launched in a checker's eyes.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, product_type, rounded
from engine.worker.kernels.quantized_experts import LEAST, ROWS, Blocks


@dataclass(frozen=True, slots=True)
class Tiles:
    """Outputs and inputs of one product, and how many warps and loads on their way a program has."""

    outputs: int
    inputs: int
    warps: int
    stages: int


UP, DOWN = Tiles(32, 128, 4, 4), Tiles(64, 128, 4, 4)


@triton.jit
def gated_products(
    x, rows, weights, out, experts, firsts, ends, inner, width,
    TYPE: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """SiLU(gate) · value of one block, for some of an expert's ``inner`` columns."""
    block = tl.program_id(0)
    first, end = tl.load(firsts + block), tl.load(ends + block)
    if first < end:
        row, column = first + tl.arange(0, ROWS), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        real, there = row < end, column < inner
        line = tl.load(rows + row, mask=real, other=0).to(tl.int64) * width
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
        small = tl.exp(-tl.abs(gate))  # of the gate as it is, it would overflow
        found = gate * (tl.where(gate < 0, small, 1.0) / (1.0 + small)) * value
        tl.store(
            out + row.to(tl.int64)[:, None] * inner + column[None, :],
            rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty), mask=real[:, None] & there[None, :],
        )  # fmt: skip


@triton.jit
def shared_products(
    x, weights, shares, places, out, experts, firsts, ends, outputs, width,
    TYPE: tl.constexpr, BY_HAND: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """Some outputs of one block, times each answer's share, at the answers' places."""
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
        place = tl.load(places + row, mask=real, other=0).to(tl.int64)
        found = found * tl.load(shares + place, mask=real, other=0).to(tl.float32)[:, None]
        tl.store(
            out + place[:, None] * outputs + column[None, :],
            rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty), mask=real[:, None] & there[None, :],
        )  # fmt: skip


def answers(
    x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor, up: Tiles = UP, back: Tiles = DOWN
) -> Tensor:
    """See moe.moe."""
    (count, top_k), (width, inner) = experts.shape, down.shape[1:]
    order, blocks = sorted_blocks(experts, len(gate_up))
    middle = torch.empty(count * top_k, inner, device=x.device, dtype=x.dtype)
    out = torch.empty(count * top_k, width, device=x.device, dtype=x.dtype)
    both = {"TYPE": product_type(x.dtype), "BY_HAND": by_hand(), "ROWS": ROWS}
    gated_products[len(blocks.experts), triton.cdiv(inner, up.outputs)](
        x.contiguous(), order // top_k, gate_up, middle, blocks.experts, blocks.firsts, blocks.ends, inner, width,
        **both, **tiles(up, width),
    )  # fmt: skip
    shared_products[len(blocks.experts), triton.cdiv(width, back.outputs)](
        middle, down, shares.flatten(), order, out, blocks.experts, blocks.firsts, blocks.ends, width, inner,
        **both, **tiles(back, inner),
    )  # fmt: skip
    return out.view(count, top_k, -1).sum(1)


def tiles(one: Tiles, inputs: int) -> dict[str, int]:
    """What a launch wants of tiles over so many inputs."""
    return {
        "OUTPUTS": one.outputs, "INPUTS": min(one.inputs, max(LEAST, triton.next_power_of_2(inputs))),
        "num_warps": one.warps, "num_stages": one.stages,
    }  # fmt: skip


def sorted_blocks(experts: Tensor, count: int) -> tuple[Tensor, Blocks]:
    """The answers [rows · top_k] sorted by expert, of so many, and their blocks. Of one row each is a block already:
    nobody is asked twice."""
    chosen = experts.flatten()
    if len(experts) == 1:
        at = torch.arange(len(chosen), device=chosen.device)
        return at, Blocks(chosen, at, at + 1)
    order = torch.argsort(chosen, stable=True)
    return order, Blocks.of(chosen[order], count)
