"""The order of the queue, and which request a full queue rejects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.control.fair_queue import FairQueue
from engine.errors import Overloaded


def served(queue: FairQueue) -> list[str]:
    """The owners in the order in which they leave the queue."""
    owners: list[str] = []
    while queue:
        waiter = queue.next
        queue.leave(waiter, served=True)
        owners.append(waiter.owner)
    return owners


def test_owners_with_equally_many_slots_take_turns() -> None:
    queue = FairQueue("s", 8)
    for owner in "aaabb":
        queue.join(owner)
    assert served(queue) == ["a", "b", "a", "b", "a"]


def test_the_owner_with_the_fewest_slots_is_next() -> None:
    queue = FairQueue("s", 8)
    queue.hold("a", 1)
    for owner in "ab":
        queue.join(owner)
    assert queue.next.owner == "b"
    queue.release("a", 1)
    assert queue.next.owner == "a"


def test_a_full_queue_rejects_the_last_request_of_the_owner_with_the_most() -> None:
    queue = FairQueue("s", 2)
    first, last = queue.join("a"), queue.join("a")
    queue.join("b")
    assert (first.rejected, last.rejected, last.turn.is_set()) == (False, True, True)
    with pytest.raises(Overloaded, match="s is busy and 2 requests are already waiting"):
        queue.join("a")


def test_a_request_that_leaves_without_a_slot_does_not_end_its_round() -> None:
    queue = FairQueue("s", 8)
    queue.leave(queue.join("a"), served=False)
    queue.join("b")
    assert queue.join("c").round == queue.next.round == 1


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(1, 6))
def test_never_more_than_the_limit_wait_and_everyone_is_served(owners: list[str], limit: int) -> None:
    queue = FairQueue("s", limit)
    for owner in owners:
        try:
            queue.join(owner)
        except Overloaded:
            continue
        assert sum(not waiter.rejected for waiter in queue._waiters) <= limit
    while queue:
        queue.leave(queue.next, served=not queue.next.rejected)
