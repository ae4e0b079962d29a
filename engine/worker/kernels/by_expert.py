"""Answers of experts in the order of their experts, and the blocks of rows that belong to one expert each, in one pass.

How many blocks there are is the device's to know; the host launches as many as there could be, and those beyond the
last end at once.
"""

# pyright: reportIndexIssue=false
# Where Triton is not installed, what it makes of a function is unknown, and cannot be launched in a checker's eyes.

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16  # of a block: the fewest that tensor cores multiply, and more than an expert gets in most steps
AT_ONCE = 1024  # answers that a program looks at


@dataclass(frozen=True, slots=True)
class ByExpert:
    """Answers [rows · top_k] in the ``order`` of their experts, of one expert as they came; their blocks of ``rows``:
    whose each is [blocks], where it begins in that order, and where its expert ends. A block that is nobody's begins
    where its expert has ended."""

    order: Tensor
    experts: Tensor
    firsts: Tensor
    ends: Tensor
    rows: int

    @classmethod
    def of(cls, experts: Tensor, count: int, rows: int = ROWS) -> ByExpert:
        """``experts`` [rows, top_k] are below ``count``. Of one row each answer is a block: nobody is asked twice."""
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
    """The answers and the blocks of one expert. Of those before it, the blocks are fewer than their answers over ROWS
    and one each, and so many are theirs."""
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
    until = end // ROWS + own + 1  # of the last expert: as many as there are at most
    for number in range(block, until):
        tl.store(experts + number, own.to(tl.int64))
        tl.store(firsts + number, (first + (number - block) * ROWS).to(tl.int64))
        tl.store(ends + number, end.to(tl.int64))
