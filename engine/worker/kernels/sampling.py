"""Draws a token per row of logits as ``nn.sampler.draw`` does, in one launch, for vocabularies that fit into registers.

Top-k and top-p are applied without sorting: a bitwise binary search finds the lowest logit to keep. Of ids with exactly
that logit, the first are kept.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams, signed
from engine.worker.randomness import BITS, GOLDEN, MIX

MOST_IDS = 4096
LEAST = tl.constexpr(-(2**31))
STEP, FIRST, SECOND = (tl.constexpr(signed(one)) for one in (GOLDEN, *MIX))


@triton.jit
def shift_right(x, BY: tl.constexpr):
    """Logical right shift of ``x`` by BY bits."""
    return (x >> BY) & ((1 << (64 - BY)) - 1)


@triton.jit
def mix_bits(x):
    x = (x ^ shift_right(x, 30)) * FIRST
    x = (x ^ shift_right(x, 27)) * SECOND
    return x ^ shift_right(x, 31)


@triton.jit
def threshold_key(keys, weights, enough):
    """Return the largest key such that all keys from it on have at least the total weight ``enough``."""
    found = tl.where(tl.sum(tl.where(keys >= 0, weights, 0.0), 0) >= enough, 0, LEAST)
    for i in range(31):
        larger = found | (1 << (30 - i))
        found = tl.where(tl.sum(tl.where(keys >= larger, weights, 0.0), 0) >= enough, larger, found)
    return found


@triton.jit
def sample_kernel(
    logits,
    seeds,
    greedy,
    heats,
    top_ks,
    top_ps,
    steps,
    out,
    ids,
    stage,
    codebook,
    WIDE: tl.constexpr,
    BITS: tl.constexpr,
    FAILED: tl.constexpr,
):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDE)
    there = column < ids
    given = tl.load(logits + row * ids + column, mask=there, other=float("-inf")).to(tl.float32)
    failed = tl.max((given != given).to(tl.int32), 0) > 0
    given = tl.where((given != given) | (given == 0.0), 0.0, given)  # also replaces -0.0 by 0.0
    best = tl.argmax(given, 0)
    if tl.load(greedy + row) == 0:
        bits = given.to(tl.int32, bitcast=True)
        keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the logits
        most = tl.minimum(tl.load(top_ks + row), ids).to(tl.float32)
        least = threshold_key(keys, there.to(tl.float32), most)
        above, level = (keys > least) & there, (keys == least) & there
        left = most - tl.sum(above.to(tl.float32), 0)
        kept = above | (level & (tl.cumsum(level.to(tl.int32), 0) <= left))
        heat = given / tl.load(heats + row)
        share = tl.where(kept, tl.exp(heat - tl.max(tl.where(kept, heat, float("-inf")), 0)), 0.0)
        share = share / tl.sum(share, 0)
        part = tl.load(top_ps + row)
        least = tl.minimum(threshold_key(keys, share, part), tl.max(tl.where(there, keys, LEAST), 0))
        above, level = (keys > least) & kept, (keys == least) & kept
        before = tl.cumsum(level.to(tl.int32), 0) - 1  # rank among equally likely ids
        begins = tl.sum(tl.where(above, share, 0.0), 0) + before * share
        ends = tl.cumsum(tl.where(above | (level & ((begins < part) | (before == 0))), share, 0.0), 0)
        whole = tl.max(ends, 0)
        state = mix_bits(tl.load(seeds + row) + stage)
        state = mix_bits(mix_bits(state + (tl.load(steps + row) + 1) * STEP) + codebook)
        point = shift_right(state, 64 - BITS).to(tl.float32) / (1 << BITS) * whole
        best = tl.sum(((ends <= point) & (ends < whole) & there).to(tl.int32), 0)
    tl.store(out + row, tl.where(failed, FAILED, best).to(tl.int64))


def draw(logits: Tensor, params: BatchSamplingParams, stage: int, steps: Tensor, codebook: int) -> Tensor:
    """See ``Kernels.draw``."""
    batch, ids = logits.shape
    out = torch.empty(batch, device=logits.device, dtype=torch.int64)
    sample_kernel[batch,](
        logits.contiguous(),
        params.seeds,
        params.greedy,
        params.temperature,
        params.top_k,
        params.top_p,
        steps,
        out,
        ids,
        signed(GOLDEN * (stage + 1)),
        signed(GOLDEN * (codebook + 1)),
        WIDE=triton.next_power_of_2(ids),
        BITS=BITS,
        FAILED=FAILED,
    )
    return out
