"""Who has room in a cache that requests share: those in their turn, all that they may use; nobody waits for ever."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.nn.slots import KvSlots
from engine.worker.omni.kv_cache_admission import AHEAD, KvCacheAdmission
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import request
from tests.engine.worker.models.qwen3_omni.driven import Frames

CPU = torch.device("cpu")
SIZE = 1000


class Place:
    """A shared cache of SIZE positions, its room, and who gave up what was computed."""

    def __init__(self, positions: int | None = SIZE, slots: int = 6) -> None:
        self.cache = KvSlots(1, slots, 1, 500, 2, CPU, torch.float32, positions)
        self.gave_up: list[int] = []
        self.room = KvCacheAdmission(self.cache, lambda req: self.gave_up.append(req.slot))
        self.reqs = [StageRequest(request(), slot, Frames()) for slot in range(slots)]

    def take(self, slot: int, need: int, whole: bool = True) -> bool:
        found = self.room.take(self.reqs[slot], need, whole)
        assert self.reqs[slot].waits == (not found)
        return found

    @property
    def held(self) -> dict[int, int]:
        return {slot: len(extent) for slot, extent in self.cache.extents.held.items()}


def test_where_each_has_a_full_context_there_is_always_room() -> None:
    place = Place(positions=None)
    assert all(place.take(slot, 500) for slot in range(6))
    assert place.held == dict.fromkeys(range(6), 500)


def test_who_finds_no_room_waits_in_its_turn() -> None:
    place = Place()
    assert place.take(0, 500)
    assert place.take(1, 400)
    assert not place.take(2, 300)
    assert not place.take(3, 50), "behind those that wait already, though it would fit"
    place.reqs[1].done = True
    assert not place.take(3, 50)
    assert place.take(2, 300)
    assert not place.reqs[3].waits, "it is its turn now"
    assert place.take(3, 50)
    assert place.held == {0: 500, 2: 300, 3: 50}
    assert place.take(3, 700), "it has all that it asked for, once"
    assert place.held[3] == 50


def test_one_that_is_next_in_line_has_no_room_before_it_asks_again() -> None:
    """In the step in which the one before it found room, it is not to be computed."""
    place = Place()
    assert place.take(0, 900)
    assert not place.take(1, 400)
    assert not place.take(2, 300)
    place.reqs[0].done = True
    assert not place.take(2, 300), "it asks first, and is not the first"
    assert place.take(1, 400)
    assert not place.reqs[2].waits
    assert not place.room.has(place.reqs[2])
    assert place.take(2, 300)
    assert place.room.has(place.reqs[2])
    place.reqs[2].done = True
    place.reqs[2] = StageRequest(request(), 2, Frames())
    assert place.room.has(place.reqs[2]), "another one in its slot, which has not asked"


def test_one_that_was_given_up_holds_nothing_and_no_place_in_the_line() -> None:
    place = Place()
    assert place.take(0, 500)
    assert place.take(1, 500)
    assert not place.take(2, 500)
    assert not place.take(3, 400)
    place.reqs[1].closed = place.reqs[2].closed = True
    assert place.take(3, 400)
    place.reqs[0] = StageRequest(request(), 0, Frames())  # its slot is another's
    assert place.take(0, 500)
    assert place.held == {0: 500, 3: 400}
    assert not place.room._refused, "who is over is kept by nothing"


def test_what_was_computed_ahead_gives_way_the_latest_first_and_no_more_than_need_be() -> None:
    place = Place()
    for slot in (0, 1, 2):
        assert place.take(slot, 200, whole=False)
    assert place.held == dict.fromkeys((0, 1, 2), 2 * AHEAD)
    assert place.take(3, 300)
    assert place.gave_up == [2]
    assert not place.take(2, 300, whole=False), "and takes from nobody"
    assert place.take(0, 490), "what was ahead keeps what it has and gets the rest"
    assert place.gave_up == [2, 1]
    assert place.held == {0: 490, 3: 300}


def test_nothing_is_computed_ahead_while_others_wait() -> None:
    place = Place()
    assert place.take(0, 450)
    assert place.take(1, 400)
    assert not place.take(2, 200)
    assert not place.take(3, 10, whole=False)
    assert place.held == {0: 450, 1: 400}


def test_room_ahead_grows_by_steps_up_to_a_context() -> None:
    place = Place()
    sizes = list[int]()
    for need in range(1, 501):
        assert place.take(0, need, whole=False)
        sizes.append(place.held[0])
    assert sorted(set(sizes)) == [AHEAD, 2 * AHEAD, 3 * AHEAD, 500]


def test_one_of_32_000_beside_63_short_ones_and_a_second_that_waits() -> None:
    cache = KvSlots(1, 65, 1, 32_768, 1, torch.device("meta"), torch.float32, 48_000)
    room = KvCacheAdmission(cache, lambda req: None)
    reqs = [StageRequest(request(), slot, Frames()) for slot in range(65)]
    assert room.take(reqs[0], 32_000, whole=True)
    assert all(room.take(req, 200, whole=True) for req in reqs[1:64])
    assert not room.take(reqs[64], 32_000, whole=True)
    reqs[0].done = True
    assert room.take(reqs[64], 32_000, whole=True)


@given(needs=st.lists(st.tuples(st.integers(1, 500), st.booleans()), min_size=1, max_size=12), data=st.data())
def test_all_come_to_their_end(needs: list[tuple[int, bool]], data: st.DataObject) -> None:
    """Some begin while their users speak; each ends some time after it has what it needs."""
    place = Place(slots=len(needs))
    open_ = set(range(len(needs)))
    whole = {slot for slot in open_ if not needs[slot][1]}
    settled = set[int]()
    for turn in range(200):
        if not open_:
            break
        for slot in data.draw(st.permutations(sorted(open_))) if turn < 20 else sorted(open_):
            if slot not in settled and place.take(slot, needs[slot][0], slot in whole) and slot in whole:
                settled.add(slot)
        assert sum(place.held.values()) <= SIZE
        assert all(place.held[slot] >= needs[slot][0] for slot in settled)
        if settled:
            over = min(settled)
            place.reqs[over].done = True
            settled.discard(over)
            open_.discard(over)
        whole |= set(list(open_ - whole)[:1])  # somebody has spoken
    assert not open_
