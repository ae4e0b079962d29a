"""Sorts expert assignments by expert and cuts them into blocks of one expert each, in one launch.

The number of blocks is known only on the device. The host launches the maximum, and unused blocks return immediately.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, pyright does not know that functions with `triton.jit` can be indexed to launch them.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # rows per block: the minimum of tensor cores, and more than an expert gets in most steps
AT_ONCE = 1024  # assignments that a program scans at once


@dataclass(frozen=True, slots=True)
class ByExpert:
    """Assignments of rows to experts [rows · top_k], sorted by expert (stable), and cut into blocks."""

    order: Tensor
    """Indices of the assignments, sorted by expert [rows · top_k]."""
    experts: Tensor
    """Expert of each block [blocks]."""
    firsts: Tensor
    """First sorted index of each block [blocks]. An unused block starts where its expert ends."""
    ends: Tensor
    """Sorted index after the last of the block's expert [blocks]."""
    rows: int
    """Maximum rows per block."""

    @classmethod
    def of(cls, experts: Tensor, count: int, rows: int = ROWS) -> ByExpert:
        """Sort ``experts`` [rows, top_k], which are below ``count``. For a single row, each assignment is a block."""
        chosen = experts.flatten()
        if len(experts) == 1:
            at = torch.arange(len(chosen), device=chosen.device)
            return cls(at, chosen, at, at + 1, rows)
        order = torch.empty_like(chosen)
        whose, firsts, ends = chosen.new_empty(3, len(chosen) // rows + count).unbind()
        sort_by_expert_kernel[count,](chosen, order, whose, firsts, ends, len(chosen), ROWS=rows, AT_ONCE=AT_ONCE)
        return cls(order, whose, firsts, ends, rows)


@triton.jit(do_not_specialize=["count"])
def sort_by_expert_kernel(chosen, order, experts, firsts, ends, count, ROWS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Write the sorted assignments and the blocks of one expert.

    Each earlier expert uses at most (assignments / ROWS) + 1 blocks, which gives the offset of this one's blocks.
    """
    own, at = tl.program_id(0), tl.arange(0, AT_ONCE)
    before, mine = tl.zeros([AT_ONCE], tl.int32), tl.zeros([AT_ONCE], tl.int32)
    for start in range(0, count, AT_ONCE):
        one = tl.load(chosen + start + at, mask=start + at < count, other=1 << 30)
        before += (one < own).to(tl.int32)
        mine += (one == own).to(tl.int32)
    first, held = tl.sum(before, 0), tl.sum(mine, 0)
    end, place = first + held, first
    for start in range(0, count, AT_ONCE):
        one = tl.load(chosen + start + at, mask=start + at < count, other=1 << 30)
        is_own = (one == own).to(tl.int32)
        tl.store(order + place + tl.cumsum(is_own, 0) - 1, (start + at).to(tl.int64), mask=is_own != 0)
        place += tl.sum(is_own, 0)
    block = first // ROWS + own
    until = end // ROWS + own + 1  # for the last expert, the total number of blocks
    for number in range(block, until):
        tl.store(experts + number, own.to(tl.int64))
        tl.store(firsts + number, (first + (number - block) * ROWS).to(tl.int64))
        tl.store(ends + number, end.to(tl.int64))
