"""Snake activation (x + sin²(αx)/β) of a signal, with the next convolution's past columns copied in front of it.

One pass does both. torch would make five passes over the widest signals of a codec's decoder, and one more to prepend
the past columns. The arithmetic is float32; only the result is stored in the signal's dtype.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, rounded

COLUMNS = 1024  # columns of a signal per program


@triton.jit
def snake_kernel(
    x,
    alpha,
    inverse,
    past,
    slots,
    out,
    channels,
    before,
    count,
    row,
    line,
    PAST: tl.constexpr,
    COLUMNS: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Process some columns of one channel of one signal."""
    which = tl.program_id(0).to(tl.int64)
    signal, channel = which // channels, which % channels
    at, whole = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS), before + count
    own = (at >= before) & (at < whole)
    value = tl.load(x + signal * row + channel * line + at - before, mask=own, other=0.0).to(tl.float32)
    wave = tl.sin(value * tl.load(alpha + channel).to(tl.float32))
    found = value + tl.load(inverse + channel).to(tl.float32) * wave * wave
    if PAST:
        slot = tl.load(slots + signal).to(tl.int64)
        known = tl.load(past + (slot * channels + channel) * before + at, mask=at < before, other=0.0)
        found = tl.where(at < before, known.to(tl.float32), found)
    found = tl.where(own | (at < before), found, 0.0)
    found = rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty)
    tl.store(out + which * whole + at, found, mask=at < whole)


def snake(x: Tensor, alpha: Tensor, inverse: Tensor, past: Tensor | None, slots: Tensor, before: int) -> Tensor:
    """See ``Kernels.snake``."""
    batch, channels, count = x.shape
    x = x if x.stride(2) == 1 else x.contiguous()
    out = torch.empty(batch, channels, before + count, device=x.device, dtype=x.dtype)
    columns = min(COLUMNS, triton.next_power_of_2(before + count))
    snake_kernel[batch * channels, triton.cdiv(before + count, columns)](
        x,
        alpha,
        inverse,
        x if past is None else past,
        slots,
        out,
        channels,
        before,
        count,
        x.stride(0),
        x.stride(1),
        PAST=past is not None and before > 0,
        COLUMNS=columns,
        BY_HAND=by_hand(),
    )
    return out
