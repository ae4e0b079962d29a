"""Products of rows with the quantized weights of their experts: whole numbers are read as they lie, and never written
out.

Rows come sorted by expert and are cut into blocks that belong to one expert each. How many blocks that makes is the
device's to know; the host launches as many as there could be, and those beyond the last end at once. Numbers become the
very weights that ``QuantizedWeight.dense`` would write, to the bit; sums are float32.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, what it makes of a function is unknown, and cannot be launched in a checker's eyes.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import TYPES, by_hand, product_type, rounded
from engine.worker.nn.quantized import QuantizedWeight

ROWS = 16  # of a block: the fewest that tensor cores multiply, and more than an expert gets in most steps
OUTPUTS, INPUTS = 64, 64  # of one product
LEAST = 16  # inputs of a product at least; halves of bytes are two products


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of rows that are sorted by expert: whose each is [blocks], where it begins, and where that expert ends."""

    experts: Tensor
    firsts: Tensor
    ends: Tensor

    @classmethod
    def of(cls, chosen: Tensor, count: int) -> Blocks:
        """``chosen`` [rows] are experts below ``count`` in order. A block that is nobody's ends before it begins."""
        most = min(len(chosen), len(chosen) // ROWS + count)
        ends = torch.searchsorted(chosen, torch.arange(count, device=chosen.device), right=True)
        begins = torch.cat((torch.zeros_like(ends[:1]), ends[:-1]))
        blocks = (ends - begins + ROWS - 1) // ROWS
        upto = blocks.cumsum(0)
        numbers = torch.arange(most, device=chosen.device)
        experts = torch.searchsorted(upto, numbers, right=True)
        real = experts < count
        own = experts.clamp(max=count - 1)
        firsts = begins[own] + (numbers - (upto - blocks)[own]) * ROWS
        return cls(own, firsts, torch.where(real, ends[own], 0))


@triton.jit
def written(
    held, half, scales, zeros, where, there,
    BITS: tl.constexpr, MIDDLE: tl.constexpr, ZEROS: tl.constexpr, SCALE: tl.constexpr, WEIGHT: tl.constexpr,
    BY_HAND: tl.constexpr,
):  # fmt: skip
    """Weights of the numbers in some bytes, or in one half of each, rounded just as ``QuantizedWeight.dense`` does."""
    number = (((held >> 4) if half else (held & 15)) if BITS == 4 else held).to(tl.float32)
    if ZEROS:
        number -= tl.load(zeros + where, mask=there, other=0).to(tl.float32)
        number = rounded(number, SCALE, BY_HAND).to(tl.float32)
    else:
        number -= MIDDLE
    scale = tl.load(scales + where, mask=there, other=0).to(tl.float32)
    return rounded(rounded(number * scale, SCALE, BY_HAND).to(tl.float32), WEIGHT, BY_HAND)


@triton.jit
def product(
    x, rows, numbers, scales, zeros, table, shares, places, out,
    experts, firsts, ends, outputs, width, groups, each,
    BITS: tl.constexpr, MIDDLE: tl.constexpr, ZEROS: tl.constexpr, TABLE: tl.constexpr, SHARES: tl.constexpr,
    SCALE: tl.constexpr, WEIGHT: tl.constexpr, TYPE: tl.constexpr,
    BY_HAND: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """Some outputs of one block. ``each`` inputs in a row share a scale, unless TABLE tells the group of each; SHARES
    weigh answers, and ``places`` say where they go."""
    block = tl.program_id(0)
    first, end = tl.load(firsts + block), tl.load(ends + block)
    if first < end:
        expert = tl.load(experts + block).to(tl.int64)
        row, output = first + tl.arange(0, ROWS), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        real, there = row < end, output < outputs
        line = tl.load(rows + row, mask=real, other=0).to(tl.int64) * width
        weight_line = expert * outputs + output
        found = tl.zeros([ROWS, OUTPUTS], tl.float32)
        packed: tl.constexpr = 8 // BITS
        for start in range(0, width, INPUTS * packed):
            byte = start // packed + tl.arange(0, INPUTS)
            inside = byte < width // packed
            held = tl.load(
                numbers + weight_line[:, None] * (width // packed) + byte[None, :],
                mask=there[:, None] & inside[None, :], other=0,
            )  # fmt: skip
            for half in tl.static_range(packed):
                at = byte * packed + half
                group = tl.load(table + at, mask=inside, other=0) if TABLE else at // each
                where = weight_line[:, None] * groups + group[None, :]
                both = there[:, None] & inside[None, :]
                weight = written(held, half, scales, zeros, where, both, BITS, MIDDLE, ZEROS, SCALE, WEIGHT, BY_HAND)
                given = tl.load(x + line[:, None] + at[None, :], mask=real[:, None] & inside[None, :], other=0)
                found += tl.dot(given.to(TYPE), tl.trans(weight.to(TYPE)), input_precision="ieee")
        if SHARES:
            found = found * tl.load(shares + row, mask=real, other=0).to(tl.float32)[:, None]
        place = tl.load(places + row, mask=real, other=0).to(tl.int64) * outputs
        tl.store(
            out + place[:, None] + output[None, :],
            rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty), mask=real[:, None] & there[None, :],
        )  # fmt: skip


def multiplied(
    x: Tensor, rows: Tensor, weight: QuantizedWeight, blocks: Blocks, places: Tensor, shares: Tensor | None = None
) -> Tensor:
    """Products [rows, outputs] of rows ``x[rows]``, sorted by expert, with their experts' weights, at their places."""
    outputs, width = weight.numbers.shape[1], x.shape[1]
    packed, groups = 8 // weight.bits, weight.scales.shape[-1]
    out = torch.empty(len(rows), outputs, device=x.device, dtype=x.dtype)
    unsigned = weight.numbers.dtype == torch.uint8
    inputs = min(INPUTS, max(LEAST, triton.next_power_of_2(width // packed)))
    product[len(blocks.experts), triton.cdiv(outputs, OUTPUTS)](
        x.contiguous(), rows, weight.numbers, weight.scales,
        weight.scales if weight.zeros is None else weight.zeros,
        rows if weight.groups is None else weight.groups,
        x if shares is None else shares, places, out,
        blocks.experts, blocks.firsts, blocks.ends, outputs, width, groups, width // groups,
        BITS=weight.bits, MIDDLE=1 << (weight.bits - 1) if unsigned and weight.zeros is None else 0,
        ZEROS=weight.zeros is not None, TABLE=weight.groups is not None, SHARES=shares is not None,
        SCALE=TYPES[weight.scales.dtype], WEIGHT=TYPES[weight.dtype], TYPE=product_type(x.dtype),
        BY_HAND=by_hand(), ROWS=ROWS, OUTPUTS=OUTPUTS, INPUTS=inputs,
    )  # fmt: skip
    return out


def takes(weight: QuantizedWeight) -> bool:
    """Whether the numbers are of a kind that ``product`` knows."""
    whole = weight.numbers.dtype in (torch.uint8, torch.int8)
    return whole and weight.bits in (4, 8) and weight.scales.dtype in TYPES and weight.dtype in TYPES
