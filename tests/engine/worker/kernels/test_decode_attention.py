"""Attention of a decode step by a kernel against torch's own, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.slots import DecodeSlots, KvSlots, SlotsInPlace
from tests.engine.worker.kernels.figures import differing
from tests.engine.worker.nn.test_blocks import CPU

CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
"""Of each dtype: the bar, and what one rounding of numbers around 1 may be (with two of the weights within)."""


@dataclass(frozen=True, slots=True)
class Case:
    """Rows whose slots lie in one cache, with what is no number wherever they may not look."""

    query: Tensor
    keys: Tensor
    values: Tensor
    begins: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], heads: tuple[int, int], dim: int, dtype: torch.dtype) -> Case:
        dice, (many, few) = torch.Generator().manual_seed(dim + sum(lengths)), heads
        begins = [5 + 3 * i + sum(lengths[:i]) for i in range(len(lengths))]
        keys, values = torch.full((2, few, begins[-1] + lengths[-1] + 70, dim), torch.nan, dtype=dtype)
        for begin, length in zip(begins, lengths, strict=True):
            keys[:, begin : begin + length] = torch.randn(few, length, dim, generator=dice).to(dtype)
            values[:, begin : begin + length] = torch.randn(few, length, dim, generator=dice).to(dtype)
        query = torch.randn(len(lengths), 1, many, dim, generator=dice).to(dtype).transpose(1, 2)
        return cls(query, keys, values, torch.tensor(begins), torch.tensor(lengths))

    def expected(self) -> Tensor:
        """float32, of the numbers that lie in the cache."""
        rows = zip(self.query, self.begins.tolist(), self.lengths.tolist(), strict=True)
        return torch.stack([
            F.scaled_dot_product_attention(
                query.float(), self.keys[:, begin : begin + length].float(),
                self.values[:, begin : begin + length].float(), enable_gqa=True,
            )
            for query, begin, length in rows
        ])  # fmt: skip

    def found(self, kernels: Kernels, longest: int | None = None) -> Tensor:
        longest = longest or int(self.lengths.max())
        return kernels.attend(self.query, self.keys, self.values, self.begins, self.lengths, longest)


def check(case: Case, kernels: Kernels, longest: int | None = None) -> None:
    found, expected = case.found(kernels, longest), case.expected()
    assert found.dtype == case.query.dtype
    assert found.shape == expected.shape
    assert differing("attend", found, expected) <= CLOSE[case.query.dtype]


@pytest.mark.triton
@pytest.mark.parametrize("dtype", CLOSE)
def test_a_row_sees_its_own_positions_and_no_others(dtype: torch.dtype, kernels: Kernels) -> None:
    check(Case.of([1, 13, 300], (4, 2), 32, dtype), kernels)


@pytest.mark.triton
def test_a_position_too_few_or_too_many_would_show(kernels: Kernels) -> None:
    """The control: one position less is another answer, one more is none."""
    case = Case.of([9, 130], (2, 1), 16, torch.float32)
    expected = case.expected()
    fewer = Case(case.query, case.keys, case.values, case.begins, case.lengths - 1)
    assert (fewer.found(kernels) - expected).abs().amax((1, 2, 3)).min() > 1e-3
    more = Case(case.query, case.keys, case.values, case.begins, case.lengths + 1)
    assert more.found(kernels).isnan().all()


@pytest.mark.triton
def test_a_row_is_the_same_to_the_bit_whoever_is_beside_it_and_whatever_is_the_longest(kernels: Kernels) -> None:
    case = Case.of([40, 600, 257], (4, 2), 16, torch.float32)
    together = case.found(kernels, 4096)
    for i, length in enumerate((40, 600, 257)):
        own = slice(i, i + 1)
        alone = Case(case.query[own], case.keys, case.values, case.begins[own], case.lengths[own])
        assert torch.equal(alone.found(kernels, length), together[own])


@pytest.mark.triton
@pytest.mark.parametrize("positions", [None, 60], ids=["own", "shared"])
def test_a_decode_step_in_place_is_the_one_that_gathers(positions: int | None, kernels: Kernels) -> None:
    """Also after slots of a shared cache have moved."""
    cache = KvSlots(1, 4, 2, 24, 16, CPU, torch.float32, positions)
    if positions is not None:
        for slot, count in ((0, 10), (1, 20), (2, 15), (0, 0), (3, 24)):
            assert cache.resize(slot, count)
    dice = torch.Generator().manual_seed(1)
    cache.keys.normal_(generator=dice)
    cache.values.normal_(generator=dice)
    slots, starts = torch.tensor([2, 1, 3]), torch.tensor([14, 0, 7])
    query, key, value = (torch.randn(3, heads, 1, 16, generator=dice) for heads in (4, 2, 2))
    kept = cache.keys.clone(), cache.values.clone()
    plain = DecodeSlots.of(cache, slots, starts, 24).mix(query, key, value, cache.keys[0], cache.values[0])
    written = cache.keys.clone(), cache.values.clone()
    cache.keys[:], cache.values[:] = kept
    where = SlotsInPlace.of(cache, slots, starts, kernels)
    for held, new in ((cache.keys, key), (cache.values, value)):
        held[0][:, where.at] = new[:, :, 0].transpose(0, 1)
    ours = where.look(query, cache.keys[0], cache.values[0])
    assert (ours - plain).abs().max() <= 1e-5
    assert torch.equal(cache.keys, written[0])
    assert torch.equal(cache.values, written[1])


@pytest.mark.triton
@pytest.mark.kernels
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("dim", [16, 24, 64, 128])
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (32, 4)], ids=str)
@pytest.mark.parametrize("lengths", [[1], [127], [1, 256, 257], [2, 1021, 64]], ids=str)
def test_sizes(lengths: list[int], heads: tuple[int, int], dim: int, dtype: torch.dtype, kernels: Kernels) -> None:
    check(Case.of(lengths, heads, dim, dtype), kernels)


@pytest.mark.triton
@pytest.mark.kernels
def test_eight_thousand_positions_beside_one(kernels: Kernels) -> None:
    check(Case.of([8191, 1], (8, 1), 64, torch.float32), kernels, 8192)
