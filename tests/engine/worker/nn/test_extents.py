"""Extents of a pool: no two overlap, none is lost, and what moved is what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.nn.extents import Extents, Move
from engine.worker.nn.slots import CachePositions, DecodeSlots, KvSlots, VarlenBatch

CPU = torch.device("cpu")
SIZE = 40
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=60)


def shared(slots: int = 6, positions: int = SIZE) -> KvSlots:
    return KvSlots(2, slots, 3, 16, 4, CPU, torch.float32, positions)


@given(changes=CHANGES)
def test_no_two_overlap_and_what_is_free_can_be_had(changes: list[tuple[int, int]]) -> None:
    extents = Extents(SIZE)
    for slot, count in changes:
        before, free = dict(extents.held), extents.free
        moves = extents.resize(slot, count)
        if moves is None:
            assert count - len(before.get(slot, ())) > free
            assert extents.held == before
            continue
        assert len(extents.held.get(slot, ())) == count
        assert {one: len(extent) for one, extent in extents.held.items() if one != slot} == {
            one: len(extent) for one, extent in before.items() if one != slot
        }
        taken = [at for extent in extents.held.values() for at in extent]
        assert len(set(taken)) == len(taken) == SIZE - extents.free
        assert set(taken) <= set(range(SIZE))
    for slot in range(6):
        extents.resize(slot, 0)
    assert extents.free == SIZE
    assert not extents.held


@pytest.fixture(scope="module", autouse=True)
def blocks_are_small() -> Iterator[None]:
    """Content moves in several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.worker.nn.slots.BLOCK", 3)
        yield


@given(changes=CHANGES)
def test_content_goes_where_its_slot_goes(changes: list[tuple[int, int]]) -> None:
    cache, known, fresh = shared(), dict[int, torch.Tensor](), 1.0
    for slot, count in changes:
        if not cache.resize(slot, count):
            continue
        kept = known.get(slot, torch.zeros(0))[:count]
        more = torch.arange(count - len(kept)) + fresh
        fresh += len(more)
        known[slot] = torch.cat((kept, more))
        cache.keys[:, :, cache.begin(slot) + len(kept) : cache.begin(slot) + count] = more[:, None]
        cache.values[:, :, cache.begin(slot) + len(kept) : cache.begin(slot) + count] = -more[:, None]
        for one, content in known.items():
            keys, values = cache.copy(one, len(content))
            assert torch.equal(keys, content[:, None].expand(2, 3, -1, 4))
            assert torch.equal(values, -keys)
            assert not len(content) or int(cache.begins[one]) == cache.begin(one)


@pytest.mark.parametrize(
    ("held", "count", "moves"),
    [
        ({0: range(4), 1: range(8, 12)}, 8, []),  # it grows where it lies
        ({0: range(4), 1: range(4, 12)}, 8, [Move(0, 12, 4)]),  # it moves behind the other
        ({0: range(8, 12), 1: range(12, 28)}, 16, [Move(8, 0, 4), Move(12, 16, 16)]),  # all close up
        ({1: range(10, 30)}, 12, [Move(10, 0, 20)]),  # so that a new one has room behind them,
        ({0: range(20), 1: range(20, 24)}, 2, []),  # it shrinks
    ],
)
def test_as_little_moves_as_can(held: dict[int, range], count: int, moves: list[Move]) -> None:
    extents = Extents(32, held)
    assert extents.resize(0, count) == moves
    assert len(extents.held[0]) == count


def test_what_is_not_free_is_refused_and_nothing_moves() -> None:
    cache = shared(positions=20)
    assert cache.resize(0, 8)
    assert cache.resize(1, 8)
    before = dict(cache.extents.held)
    assert not cache.resize(2, 5)
    assert cache.extents.held == before
    assert cache.resize(0, 0)
    assert cache.resize(2, 12)


# --- Attention


def forward(cache: KvSlots, where: Any, width: int, seed: int) -> torch.Tensor:
    dice = torch.Generator().manual_seed(seed)
    rows = where.at.shape[1] if isinstance(where, CachePositions) else 1
    query = torch.randn(width, 6, rows, 4, generator=dice)
    key, value = torch.randn(2, width, 3, rows, 4, generator=dice)
    return where.mix(query, key, value, cache.keys[1], cache.values[1])


def filled(cache: KvSlots, lengths: dict[int, int], spare: int) -> KvSlots:
    """A cache whose slots have so many rows each, and some positions to spare."""
    for slot, length in lengths.items():
        if cache.shared:
            assert cache.resize(slot, length + spare)
        keys, values = torch.randn(2, 2, 3, length, 4, generator=torch.Generator().manual_seed(slot))
        cache.restore(slot, keys, values, 0, length)
    return cache


LENGTHS = {0: 3, 2: 9, 3: 5, 5: 1}


@pytest.mark.parametrize("slots", [[0, 2, 3, 5], [0, 2]])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_rows_see_in_extents_what_they_see_in_full_contexts(
    count: int, in_place: bool, slots: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies behind a slot's rows, and may be NaN, touches none."""
    full, small = filled(KvSlots(2, 6, 3, 16, 4, CPU, torch.float32), LENGTHS, 0), filled(shared(), LENGTHS, 3)
    for slot, length in LENGTHS.items():
        small.values[:, :, small.begin(slot) + length + count : small.begin(slot) + length + 3] = float("nan")
    starts = [LENGTHS[slot] for slot in slots]
    expected = forward(full, CachePositions.of(full, slots, starts, count), len(slots), 1)
    monkeypatch.setattr("engine.worker.nn.slots.in_place", lambda device: in_place)
    where = CachePositions.of(small, slots, starts, count)
    assert (where.seen is None) == in_place
    found = forward(small, where, len(slots), 1)
    assert torch.allclose(found, expected, atol=1e-6)
    for slot, start in zip(slots, starts, strict=True):
        assert torch.equal(full.copy(slot, start + count)[1], small.copy(slot, start + count)[1])


@pytest.mark.parametrize("in_place", [True, False])
def test_pieces_of_extents_are_each_alone(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one slot comes twice."""
    full, small = filled(KvSlots(2, 6, 3, 16, 4, CPU, torch.float32), LENGTHS, 0), filled(shared(), LENGTHS, 5)
    slots, starts, counts = [0, 0, 5, 2], [3, 5, 1, 9], [2, 2, 3, 1]
    dice = torch.Generator().manual_seed(1)
    query = torch.randn(1, 6, sum(counts), 4, generator=dice)
    key, value = torch.randn(2, 1, 3, sum(counts), 4, generator=dice)
    expected = VarlenBatch(full, slots, starts, counts).mix(query, key, value, full.keys[0], full.values[0])
    monkeypatch.setattr("engine.worker.nn.slots.in_place", lambda device: in_place)
    found = VarlenBatch(small, slots, starts, counts).mix(query, key, value, small.keys[0], small.values[0])
    assert torch.equal(found, expected) if in_place else torch.allclose(found, expected, atol=1e-6)


def test_a_static_step_follows_slots_that_moved() -> None:
    """The table of where slots begin stays the same tensor: a graph that was captured reads the new places."""
    full, small = filled(KvSlots(2, 6, 3, 16, 4, CPU, torch.float32), LENGTHS, 0), filled(shared(), LENGTHS, 2)
    table = small.begins
    slots, starts = torch.tensor([5, 2, 0]), torch.tensor([1, 9, 3])

    def step(cache: KvSlots) -> torch.Tensor:
        return forward(cache, DecodeSlots.of(cache, slots, starts, 12), 3, 2)

    assert small.resize(3, 0)
    assert small.resize(1, 20)  # all close up
    assert small.begins is table
    assert [small.begin(slot) for slot in (0, 2, 5, 1)] == [0, 5, 16, 19]
    assert torch.allclose(step(small), step(full), atol=1e-6)
    stale = table.clone()
    small.begins.copy_(torch.zeros_like(table))
    assert not torch.allclose(step(small), step(full), atol=1e-3), "the negative control: another table, other rows"
    small.begins.copy_(stale)


def test_a_slot_without_extent_writes_to_a_row_of_nobodys() -> None:
    cache = filled(shared(slots=7), LENGTHS, 0)
    before = cache.keys.clone()
    forward(cache, DecodeSlots.of(cache, torch.tensor([6]), torch.tensor([0]), 12), 1, 2)
    assert (cache.keys != before).any(-1).any(1).any(0).nonzero().flatten().tolist() == [SIZE]
