"""Mixture-of-experts products with quantized weights, which are dequantized in registers.

The dequantized weights equal those of ``QuantizedWeight.dense`` to the bit. Sums are float32.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.by_expert import ByExpert
from engine.worker.kernels.products import TYPES, by_hand, product_type, rounded
from engine.worker.nn.quantized import QuantizedWeight

OUTPUTS, INPUTS = 64, 64  # tile of a matrix product
LEAST = 16  # minimum inputs of a product; 4-bit numbers take two products per byte


@triton.jit
def dequantize(
    held,
    half,
    scales,
    zeros,
    where,
    there,
    BITS: tl.constexpr,
    MIDDLE: tl.constexpr,
    ZEROS: tl.constexpr,
    SCALE: tl.constexpr,
    WEIGHT: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Return the weights of the numbers in some bytes (or half bytes), rounded as in ``QuantizedWeight.dense``."""
    number = (((held >> 4) if half else (held & 15)) if BITS == 4 else held).to(tl.float32)
    if ZEROS:
        number -= tl.load(zeros + where, mask=there, other=0).to(tl.float32)
        number = rounded(number, SCALE, BY_HAND).to(tl.float32)
    else:
        number -= MIDDLE
    scale = tl.load(scales + where, mask=there, other=0).to(tl.float32)
    return rounded(rounded(number * scale, SCALE, BY_HAND).to(tl.float32), WEIGHT, BY_HAND)


@triton.jit
def quantized_product_kernel(
    x,
    order,
    numbers,
    scales,
    zeros,
    table,
    shares,
    out,
    experts,
    firsts,
    ends,
    outputs,
    width,
    groups,
    each,
    top_k,
    BITS: tl.constexpr,
    MIDDLE: tl.constexpr,
    ZEROS: tl.constexpr,
    TABLE: tl.constexpr,
    ANSWERS: tl.constexpr,
    SCALE: tl.constexpr,
    WEIGHT: tl.constexpr,
    TYPE: tl.constexpr,
    BY_HAND: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):
    """Compute some outputs of one block.

    ``each`` consecutive inputs share a scale, unless TABLE gives the group of each input. In the first product, each
    row of ``x`` has ``top_k`` assignments. In the second one (ANSWERS), rows are the sorted assignments, and results
    are scaled by their shares and stored in the original order.
    """
    block = tl.program_id(0)
    first, end = tl.load(firsts + block), tl.load(ends + block)
    if first < end:
        expert = tl.load(experts + block).to(tl.int64)
        row, output = first + tl.arange(0, ROWS), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        real, there = row < end, output < outputs
        answer = tl.load(order + row, mask=real, other=0)
        line = (row.to(tl.int64) if ANSWERS else answer // top_k) * width
        weight_line = expert * outputs + output
        found = tl.zeros([ROWS, OUTPUTS], tl.float32)
        packed: tl.constexpr = 8 // BITS
        for start in range(0, width, INPUTS * packed):
            byte = start // packed + tl.arange(0, INPUTS)
            inside = byte < width // packed
            held = tl.load(
                numbers + weight_line[:, None] * (width // packed) + byte[None, :],
                mask=there[:, None] & inside[None, :],
                other=0,
            )
            for half in tl.static_range(packed):
                at = byte * packed + half
                group = tl.load(table + at, mask=inside, other=0) if TABLE else at // each
                where = weight_line[:, None] * groups + group[None, :]
                both = there[:, None] & inside[None, :]
                weight = dequantize(held, half, scales, zeros, where, both, BITS, MIDDLE, ZEROS, SCALE, WEIGHT, BY_HAND)
                given = tl.load(x + line[:, None] + at[None, :], mask=real[:, None] & inside[None, :], other=0)
                found += tl.dot(given.to(TYPE), tl.trans(weight.to(TYPE)), input_precision="ieee")
        if ANSWERS:
            found = found * tl.load(shares + answer, mask=real, other=0).to(tl.float32)[:, None]
        place = (answer if ANSWERS else row.to(tl.int64)) * outputs
        tl.store(
            out + place[:, None] + output[None, :],
            rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty),
            mask=real[:, None] & there[None, :],
        )


def multiplied(
    x: Tensor, top_k: int, weight: QuantizedWeight, sorted_: ByExpert, shares: Tensor | None = None
) -> Tensor:
    """Multiply rows with the weights of their experts.

    Without ``shares``, each row of ``x`` is multiplied with the weights of its ``top_k`` experts; the results are in
    the experts' order. With ``shares`` [rows · top_k], ``x`` is in that order, and the results are scaled by their
    shares and returned in the rows' order.
    """
    (outputs, width), count = (weight.numbers.shape[1], x.shape[1]), len(sorted_.order)
    packed, groups = 8 // weight.bits, weight.scales.shape[-1]
    out = torch.empty(count, outputs, device=x.device, dtype=x.dtype)
    unsigned = weight.numbers.dtype == torch.uint8
    inputs = min(INPUTS, max(LEAST, triton.next_power_of_2(width // packed)))
    quantized_product_kernel[len(sorted_.experts), triton.cdiv(outputs, OUTPUTS)](
        x.contiguous(),
        sorted_.order,
        weight.numbers,
        weight.scales,
        weight.scales if weight.zeros is None else weight.zeros,
        sorted_.order if weight.groups is None else weight.groups,
        x if shares is None else shares,
        out,
        sorted_.experts,
        sorted_.firsts,
        sorted_.ends,
        outputs,
        width,
        groups,
        width // groups,
        top_k,
        BITS=weight.bits,
        MIDDLE=1 << (weight.bits - 1) if unsigned and weight.zeros is None else 0,
        ZEROS=weight.zeros is not None,
        TABLE=weight.groups is not None,
        ANSWERS=shares is not None,
        SCALE=TYPES[weight.scales.dtype],
        WEIGHT=TYPES[weight.dtype],
        TYPE=product_type(x.dtype),
        BY_HAND=by_hand(),
        ROWS=sorted_.rows,
        OUTPUTS=OUTPUTS,
        INPUTS=inputs,
    )
    return out


def takes(weight: QuantizedWeight) -> bool:
    """Return whether ``quantized_product_kernel`` supports a weight."""
    whole = weight.numbers.dtype in (torch.uint8, torch.int8)
    return whole and weight.bits in (4, 8) and weight.scales.dtype in TYPES and weight.dtype in TYPES
