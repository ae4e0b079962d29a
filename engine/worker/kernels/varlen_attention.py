"""Attention of all pieces of a prefill in one launch, over their slots' keys and values in place.

Pieces of different lengths are concatenated and cut into blocks of rows of one piece. A row attends to its slot up to
its own position: the earlier content and the piece up to itself. Sums are float32, block by block from the first
position (Dao et al. 2022), independent of the rest of the batch.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.kernels.products import by_hand, product_type, rounded

ROWS = 64  # rows per matrix product
BLOCK = 128  # bytes per product for one column of positions; limits float32 to the memory of an A100
FEWEST = 16  # minimum columns of a tensor core product


def cut(begins: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
    """See ``Kernels.cut``."""
    found: list[tuple[int, int, int, int]] = []
    first = 0
    for begin, start, count in zip(begins, starts, counts, strict=True):
        found += [(first + at, first + count, start + at, begin) for at in range(0, count, ROWS)]
        first += count
    return np.array(found, np.int64)


@triton.jit
def varlen_attention_kernel(
    query,
    keys,
    values,
    blocks,
    out,
    scale,
    query_head,
    query_row,
    key_head,
    key_at,
    value_head,
    value_at,
    out_head,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    TYPE: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Process one block of one piece, for one query head."""
    block, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    first, end = tl.load(blocks + block * 4), tl.load(blocks + block * 4 + 1)
    start, begin = tl.load(blocks + block * 4 + 2), tl.load(blocks + block * 4 + 3)
    row, column, at = first + tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, BLOCK)
    inside = (column < DIM)[None, :]
    real = (row < end)[:, None] & inside
    asked = tl.load(query + head * query_head + row[:, None] * query_row + column[None, :], mask=real, other=0.0)
    asked, position = asked.to(TYPE), start + tl.arange(0, ROWS)
    length = start + tl.minimum(end - first, ROWS)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    whole = tl.zeros([ROWS], tl.float32)
    found = tl.zeros([ROWS, WIDE], tl.float32)
    for since in range(0, length, BLOCK):
        there = since + at < length
        line = (begin + since + at)[:, None]
        key_line = keys + head // GROUP * key_head + line * key_at
        key = tl.load(key_line + column[None, :], mask=there[:, None] & inside, other=0.0)
        score = tl.dot(asked, tl.trans(key.to(TYPE)), input_precision="ieee") * scale
        score = tl.where((since + at)[None, :] <= position[:, None], score, float("-inf"))
        score = tl.where(there[None, :], score, float("-inf"))
        better = tl.maximum(best, tl.max(score, 1))
        weight, shrunk = tl.exp(score - better[:, None]), tl.exp(best - better)
        value_line = values + head // GROUP * value_head + line * value_at
        value = tl.load(value_line + column[None, :], mask=there[:, None] & inside, other=0.0)
        whole = whole * shrunk + tl.sum(weight, 1)
        share = rounded(weight, values.dtype.element_ty, BY_HAND).to(TYPE)
        found = found * shrunk[:, None] + tl.dot(share, value.to(TYPE), input_precision="ieee")
        best = better
    found = found / tl.where(whole > 0, whole, 1.0)[:, None]  # rows without visible positions are zero
    answer = rounded(found, out.dtype.element_ty, BY_HAND).to(out.dtype.element_ty)
    tl.store(out + head * out_head + row[:, None] * DIM + column[None, :], answer, mask=real)


def varlen(query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor) -> Tensor:
    """See ``Kernels.varlen``."""
    _, heads, count, dim = query.shape
    if query.stride(-1) != 1:
        query = query.contiguous()
    out = torch.empty(1, heads, count, dim, device=query.device, dtype=query.dtype)
    varlen_attention_kernel[len(blocks), heads](
        query,
        keys,
        values,
        blocks,
        out,
        dim**-0.5,
        query.stride(1),
        query.stride(2),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        out.stride(1),
        GROUP=heads // keys.shape[0],
        ROWS=ROWS,
        DIM=dim,
        WIDE=max(FEWEST, triton.next_power_of_2(dim)),
        BLOCK=BLOCK // keys.element_size(),
        TYPE=product_type(keys.dtype),
        BY_HAND=by_hand(),
    )
    return out
