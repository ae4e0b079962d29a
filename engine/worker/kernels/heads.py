"""Norms, rotary positions and KV cache writes of a step's attention heads, in one pass.

torch rounds up to five times for this; here all is float32 until stored.
"""

# pyright: reportIndexIssue=false, reportCallIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, rounded


@triton.jit
def store_halves(target, low, high, HALF: tl.constexpr, WIDE: tl.constexpr, BY_HAND: tl.constexpr):
    """Store both halves of a head."""
    column = tl.arange(0, WIDE)
    there = column < HALF
    low, high = rounded(low, target.dtype.element_ty, BY_HAND), rounded(high, target.dtype.element_ty, BY_HAND)
    tl.store(target + column, low.to(target.dtype.element_ty), mask=there)
    tl.store(target + HALF + column, high.to(target.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["count", "angles"])
def qk_norm_rope_kernel(
    heads,
    query_norm,
    key_norm,
    cos,
    sin,
    at,
    query,
    keys,
    values,
    eps,
    count,
    angles,
    key_head,
    key_at,
    value_head,
    value_at,
    QUERIES: tl.constexpr,
    SHARED: tl.constexpr,
    HALF: tl.constexpr,
    WIDE: tl.constexpr,
    NORMS: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Process one head of one row: store a query in the output, and a key or value at the row's cache position.

    Each slot has ``count`` rows. The ``angles`` rows of angles repeat for the following slots.
    """
    row, head = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, WIDE)
    there = column < HALF
    source = heads + (row.to(tl.int64) * (QUERIES + 2 * SHARED) + head) * 2 * HALF + column
    low = tl.load(source, mask=there, other=0.0).to(tl.float32)
    high = tl.load(source + HALF, mask=there, other=0.0).to(tl.float32)
    position = tl.load(at + row).to(tl.int64)
    if head >= QUERIES + SHARED:
        own = (head - QUERIES - SHARED).to(tl.int64)
        store_halves(values + own * value_head + position * value_at, low, high, HALF, WIDE, BY_HAND)
    else:
        if NORMS:
            scale = 1.0 / tl.sqrt((tl.sum(low * low, 0) + tl.sum(high * high, 0)) / (2 * HALF) + eps)
            norm = (query_norm if head < QUERIES else key_norm) + column
            low = low * scale * tl.load(norm, mask=there, other=0.0).to(tl.float32)
            high = high * scale * tl.load(norm + HALF, mask=there, other=0.0).to(tl.float32)
        angle = (row % angles) * 2 * HALF + column
        c = tl.load(cos + angle, mask=there, other=0.0).to(tl.float32)
        s = tl.load(sin + angle, mask=there, other=0.0).to(tl.float32)
        first, second = low * c - high * s, high * c + low * s
        if head < QUERIES:
            line = ((row // count).to(tl.int64) * QUERIES + head) * count + row % count
            store_halves(query + line * 2 * HALF, first, second, HALF, WIDE, BY_HAND)
        else:
            own = (head - QUERIES).to(tl.int64)
            store_halves(keys + own * key_head + position * key_at, first, second, HALF, WIDE, BY_HAND)


def place(
    heads: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    angles: tuple[Tensor, Tensor],
    at: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """See ``Kernels.place``."""
    batch, count, both, dim = heads.shape
    cos, sin = angles
    shared, half = keys.shape[0], dim // 2
    queries = both - 2 * shared
    query = torch.empty(batch, queries, count, dim, device=heads.device, dtype=heads.dtype)
    query_norm, key_norm = norms or (heads, heads)
    qk_norm_rope_kernel[batch * count, both](
        heads.contiguous(),
        query_norm,
        key_norm,
        cos,
        sin,
        at,
        query,
        keys,
        values,
        eps,
        count,
        cos.numel() // dim,
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        QUERIES=queries,
        SHARED=shared,
        HALF=half,
        WIDE=triton.next_power_of_2(half),
        NORMS=norms is not None,
        BY_HAND=by_hand(),
        num_warps=1,
    )
    return query
