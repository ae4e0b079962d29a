"""Expert routing: softmax over all experts and top-k, in one pass (Shazeer et al. 2017)."""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, rounded

LARGEST = tl.constexpr(3e38)


@triton.jit
def router_kernel(
    logits,
    experts,
    shares,
    count,
    TOP_K: tl.constexpr,
    PLACES: tl.constexpr,
    WIDE: tl.constexpr,
    NORMALISE: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Choose one row's experts, largest first; of equal ones, the first.

    A row with NaN gets NaN shares but valid expert ids, so no invalid address is read.
    """
    row, column, place = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE), tl.arange(0, PLACES)
    there = column < count
    given = tl.load(logits + row * count + column, mask=there, other=0.0).to(tl.float32)
    score = tl.where(given == given, tl.minimum(tl.maximum(given, -LARGEST), LARGEST), LARGEST)
    score = tl.where(there, score, float("-inf"))
    share = tl.where(there, tl.exp(given - tl.max(score, 0)), 0.0)
    share = share / tl.sum(share, 0)
    numbers, parts = tl.zeros([PLACES], tl.int64), tl.zeros([PLACES], tl.float32)
    for k in tl.static_range(TOP_K):
        best = tl.argmax(score, 0)
        numbers = tl.where(place == k, best.to(tl.int64), numbers)
        parts = tl.where(place == k, tl.sum(tl.where(column == best, share, 0.0), 0), parts)
        score = tl.where(column == best, float("-inf"), score)
    if NORMALISE:
        parts = parts / tl.sum(parts, 0)
    line = row * TOP_K + place
    tl.store(experts + line, numbers, mask=place < TOP_K)
    parts = rounded(parts, shares.dtype.element_ty, BY_HAND).to(shares.dtype.element_ty)
    tl.store(shares + line, parts, mask=place < TOP_K)


def route(logits: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """See ``Kernels.route``."""
    batch, count = logits.shape
    experts = torch.empty(batch, top_k, device=logits.device, dtype=torch.int64)
    shares = torch.empty(batch, top_k, device=logits.device, dtype=logits.dtype)
    router_kernel[batch,](
        logits,
        experts,
        shares,
        count,
        TOP_K=top_k,
        PLACES=triton.next_power_of_2(top_k),
        WIDE=triton.next_power_of_2(count),
        NORMALISE=normalise,
        BY_HAND=by_hand(),
    )
    return experts, shares
