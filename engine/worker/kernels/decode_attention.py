"""Attention of one query per row over its slot's keys and values, read in place.

Each row has its own length, so a long row does not slow down the others. A row's positions are split into ranges of
SPLIT that are computed in parallel and then combined (Dao et al. 2023, "Flash-Decoding"). The ranges depend only on the
row's length, so the order of summation does not depend on the batch. Query heads that share a key head form the rows of
one matrix product (grouped-query attention, Ainslie et al. 2023). Sums are float32.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.worker.kernels.products import by_hand, product_type, rounded

SPLIT = 256  # positions per range
BLOCK = 64  # positions per matrix product
FEWEST = 16  # minimum rows and columns of a tensor core product


@triton.jit
def split_attention_kernel(
    query,
    keys,
    values,
    begins,
    lengths,
    mixed,
    sums,
    out,
    scale,
    query_row,
    query_head,
    key_head,
    key_at,
    value_head,
    value_at,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    ALONE: tl.constexpr,
    TYPE: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Compute one range of one row for all queries that share a key head.

    Writes the unnormalized sum [GROUP, DIM], and the largest score and the sum of weights [GROUP, 2]. If no row has a
    second range (ALONE), writes the result instead.
    """
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row).to(tl.int32)
    first = split * SPLIT
    if first < length:
        begin = tl.load(begins + row).to(tl.int64)
        own, column, at = tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, BLOCK)
        real = (own < GROUP)[:, None] & (column < DIM)[None, :]
        place = row.to(tl.int64) * query_row + (head * GROUP + own)[:, None] * query_head + column[None, :]
        asked = tl.load(query + place, mask=real, other=0.0).to(TYPE)
        best = tl.full([ROWS], float("-inf"), tl.float32)
        whole = tl.zeros([ROWS], tl.float32)
        found = tl.zeros([ROWS, WIDE], tl.float32)
        for start in range(first, tl.minimum(first + SPLIT, length), BLOCK):
            seen = start + at < length
            there = seen[:, None] & (column < DIM)[None, :]
            line = (begin + start + at)[:, None]
            key = tl.load(keys + head.to(tl.int64) * key_head + line * key_at + column[None, :], mask=there, other=0.0)
            score = tl.dot(asked, tl.trans(key.to(TYPE)), input_precision="ieee") * scale
            score = tl.where(seen[None, :], score, float("-inf"))
            better = tl.maximum(best, tl.max(score, 1))
            weight = tl.exp(score - better[:, None])
            shrunk = tl.exp(best - better)
            value_line = values + head.to(tl.int64) * value_head + line * value_at
            value = tl.load(value_line + column[None, :], mask=there, other=0.0)
            whole = whole * shrunk + tl.sum(weight, 1)
            share = rounded(weight, values.dtype.element_ty, BY_HAND).to(TYPE)
            found = found * shrunk[:, None] + tl.dot(share, value.to(TYPE), input_precision="ieee")
            best = better
        number = (row * tl.num_programs(1) + head) * tl.num_programs(2) + split
        line = (number.to(tl.int64) * GROUP + own)[:, None]
        if ALONE:
            answer = rounded(found / whole[:, None], out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty)
            tl.store(out + line * DIM + column[None, :], answer, mask=real)
        else:
            tl.store(mixed + line * DIM + column[None, :], found, mask=real)
            tl.store(sums + (number.to(tl.int64) * GROUP + own) * 2, best, mask=own < GROUP)
            tl.store(sums + (number.to(tl.int64) * GROUP + own) * 2 + 1, whole, mask=own < GROUP)


@triton.jit
def combine_splits_kernel(
    mixed,
    sums,
    lengths,
    out,
    splits,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    SPLIT: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Combine the ranges of one query, whose weights are relative to each range's largest score."""
    row, head, own = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row).to(tl.int32)
    column = tl.arange(0, WIDE)
    number = (row * tl.num_programs(1) + head) * splits
    best, whole, found = float("-inf"), 0.0, tl.zeros([WIDE], tl.float32)
    for split in range((length + SPLIT - 1) // SPLIT):
        line = (number + split).to(tl.int64) * GROUP + own
        theirs = tl.load(sums + line * 2)
        better = tl.maximum(best, theirs)
        shrunk, weight = tl.exp(best - better), tl.exp(theirs - better)
        part = tl.load(mixed + line * DIM + column, mask=column < DIM, other=0.0)
        found, whole = found * shrunk + part * weight, whole * shrunk + tl.load(sums + line * 2 + 1) * weight
        best = better
    line = ((row * tl.num_programs(1) + head).to(tl.int64) * GROUP + own) * DIM
    answer = rounded(found / whole, out.dtype.element_ty, BY_HAND)
    tl.store(out + line + column, answer.to(out.dtype.element_ty), mask=column < DIM)


def attend(query: Tensor, keys: Tensor, values: Tensor, begins: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """See ``Kernels.attend``."""
    batch, heads, _, dim = query.shape
    shared, splits = keys.shape[0], triton.cdiv(longest, SPLIT)
    group, wide = heads // shared, max(FEWEST, triton.next_power_of_2(dim))
    query = query.squeeze(2)
    if query.stride(-1) != 1:
        query = query.contiguous()
    mixed = torch.empty(batch, shared, splits, group, dim, device=query.device, dtype=torch.float32)
    sums = torch.empty(batch, shared, splits, group, 2, device=query.device, dtype=torch.float32)
    out = torch.empty(batch, heads, 1, dim, device=query.device, dtype=query.dtype)
    split_attention_kernel[batch, shared, splits](
        query,
        keys,
        values,
        begins,
        lengths,
        mixed,
        sums,
        out,
        dim**-0.5,
        query.stride(0),
        query.stride(1),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        GROUP=group,
        ROWS=max(FEWEST, triton.next_power_of_2(group)),
        DIM=dim,
        WIDE=wide,
        BLOCK=BLOCK,
        SPLIT=SPLIT,
        ALONE=splits == 1,
        TYPE=product_type(keys.dtype),
        BY_HAND=by_hand(),
    )
    if splits > 1:
        combine_splits_kernel[batch, shared, group](
            mixed, sums, lengths, out, splits, GROUP=group, DIM=dim, WIDE=wide, SPLIT=SPLIT, BY_HAND=by_hand()
        )
    return out
