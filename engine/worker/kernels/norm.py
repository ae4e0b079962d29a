"""Residual sum followed by root-mean-square norm (Zhang and Sennrich 2019), in one pass."""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, rounded


@triton.jit
def rms_norm_kernel(x, more, weight, total, out, eps, width, WIDE: tl.constexpr, BY_HAND: tl.constexpr):
    """Process one row. The sum is rounded to its dtype, and the norm is computed from the rounded sum."""
    row, column = tl.program_id(0).to(tl.int64) * width, tl.arange(0, WIDE)
    there = column < width
    found = tl.load(x + row + column, mask=there, other=0.0).to(tl.float32)
    found += tl.load(more + row + column, mask=there, other=0.0).to(tl.float32)
    whole = rounded(found, total.dtype.element_ty, BY_HAND).to(total.dtype.element_ty)
    tl.store(total + row + column, whole, mask=there)
    found = whole.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(found * found, 0) / width + eps)
    found = found * scale * tl.load(weight + column, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row + column, rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty), mask=there)


def add_norm(x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See ``Kernels.add_norm``."""
    x, more, width = x.contiguous(), more.contiguous(), x.shape[1]
    total, out, wide = torch.empty_like(x), torch.empty_like(x), triton.next_power_of_2(width)
    rms_norm_kernel[len(x),](x, more, weight, total, out, eps, width, WIDE=wide, BY_HAND=by_hand())
    return total, out
