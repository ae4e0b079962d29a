"""Gated product of a feed-forward layer: SiLU(gate) · value (SwiGLU, Shazeer 2020), rounded once."""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, rounded

COLUMNS = 1024  # columns of a row per program


@triton.jit
def swiglu_kernel(x, out, inner, COLUMNS: tl.constexpr, BY_HAND: tl.constexpr):
    """Compute some columns of one row, which holds ``inner`` gates followed by ``inner`` values."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = column < inner
    gate = tl.load(x + row * 2 * inner + column, mask=there, other=0.0).to(tl.float32)
    value = tl.load(x + row * 2 * inner + inner + column, mask=there, other=0.0).to(tl.float32)
    small = tl.exp(-tl.abs(gate))  # exp(-gate) could overflow
    share = tl.where(gate < 0, small, 1.0) / (1.0 + small)
    found = rounded(gate * share * value, out.dtype.element_ty, BY_HAND)
    tl.store(out + row * inner + column, found.to(out.dtype.element_ty), mask=there)


def swiglu(x: Tensor) -> Tensor:
    """See ``Kernels.swiglu``."""
    x, inner = x.contiguous(), x.shape[-1] // 2
    out = torch.empty(*x.shape[:-1], inner, device=x.device, dtype=x.dtype)
    columns = min(COLUMNS, triton.next_power_of_2(inner))
    swiglu_kernel[out.numel() // inner, triton.cdiv(inner, columns)](x, out, inner, COLUMNS=columns, BY_HAND=by_hand())
    return out
