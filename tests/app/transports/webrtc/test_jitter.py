"""Packets back in order: nothing is lost that came in time, nothing waits longer than it must, nothing latches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transports.webrtc.jitter import DEPTH, LONGEST_GAP, Jitter

GONE = None


def name(n: int) -> bytes:
    return str(n).encode()


def push_all(jitter: Jitter, *numbers: int) -> list[list[bytes | None]]:
    return [jitter.push(n % 65536, name(n)) for n in numbers]


def test_what_comes_in_order_goes_on_at_once() -> None:
    assert push_all(Jitter(), 5, 6, 7) == [[b"5"], [b"6"], [b"7"]]


@pytest.mark.parametrize("start", [0, 65_534])
@pytest.mark.fault("N3.2")
def test_neighbours_are_swapped_back_also_where_numbers_wrap(start: int) -> None:
    jitter = Jitter()
    out = push_all(jitter, start, start + 2, start + 1, start + 5, start + 4, start + 3)
    assert [one for some in out for one in some] == [name(start + n) for n in range(6)]
    assert (jitter.lost, jitter.late, jitter.holds) == (0, 0, False)


@pytest.mark.fault("N3.1")
def test_a_loss_is_told_once_two_packets_wait() -> None:
    jitter = Jitter()
    assert push_all(jitter, 1, 3, 4, 5) == [[b"1"], [], [], [GONE, b"3", b"4", b"5"]]
    assert push_all(jitter, 6, 2) == [[b"6"], []], "nothing is held any longer, and the late one is dropped"
    assert (jitter.lost, jitter.late) == (1, 1)


def test_what_is_held_comes_when_nothing_follows() -> None:
    jitter = Jitter()
    push_all(jitter, 1, 3)
    assert jitter.holds
    assert jitter.flush() == [GONE, b"3"]
    assert jitter.flush() == []


@pytest.mark.fault("N3.2")
def test_a_duplicate_is_dropped() -> None:
    jitter = Jitter()
    assert push_all(jitter, 1, 1, 3, 3, 2) == [[b"1"], [], [], [], [b"2", b"3"]]


@pytest.mark.parametrize("jump", [LONGEST_GAP + 2, 20_000, -20_000])
def test_a_jump_begins_anew(jump: int) -> None:
    jitter = Jitter()
    push_all(jitter, 30_000, 30_002)
    assert jitter.push(30_000 + jump, b"new") == [GONE, b"30002", b"new"]
    assert jitter.push(30_001 + jump, b"next") == [b"next"]


@given(st.lists(st.integers(0, 65_535), max_size=200))
def test_whatever_comes_little_waits_and_nothing_comes_twice(numbers: list[int]) -> None:
    jitter, out = Jitter(), []
    for i, n in enumerate(numbers):
        out += [one for one in jitter.push(n, name(i)) if one is not None]
        assert len(jitter._held) <= DEPTH
    out += [one for one in jitter.flush() if one is not None]
    assert len(out) == len(set(out))
    assert len(out) + jitter.late == len(numbers)


@given(st.permutations(range(3)), st.integers(0, 65_535))
@pytest.mark.fault("N3.2")
def test_any_order_of_three_neighbours_is_undone(order: list[int], start: int) -> None:
    jitter = Jitter()
    jitter.push((start - 1) % 65_536, b"before")
    out = [one for n in order for one in jitter.push((start + n) % 65_536, name(n))]
    assert out == [b"0", b"1", b"2"]
