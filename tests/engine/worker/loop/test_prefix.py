"""What is kept of a session's prompts: the longest common prefix, of one's own session only, within a budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core import Remembered
from engine.worker.loop.prefix import Prefixes, shared

ids = st.lists(st.integers(0, 2), max_size=6)


def naive(one: list[int], other: list[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


@given(ids, ids)
def test_shared_is_the_longest_common_prefix(one: list[int], other: list[int]) -> None:
    assert shared(one, other) == naive(one, other)


@given(ids, st.integers(0, 3000), ids)
def test_so_it_is_behind_a_long_past(one: list[int], past: int, other: list[int]) -> None:
    before = tuple(range(past))
    assert shared([*before, *one], (*before, *other)) == past + naive(one, other)


@given(st.lists(st.tuples(st.sampled_from("ab"), ids), max_size=20), ids)
def test_the_best_of_all_that_was_kept_is_found_as_long_as_there_is_room(
    kept: list[tuple[str, list[int]]], asked: list[int]
) -> None:
    prefixes: Prefixes[list[int]] = Prefixes(budget=10**6)
    for session, one in kept:
        prefixes.keep(session, one, one, len(one))
    for session in "ab":
        best = max((naive(one, asked) for name, one in kept if name == session), default=0)
        found = prefixes.find(session, asked)
        assert (found[0] if found else 0) == best
        if found:
            assert naive(found[1], asked) == best


@given(st.lists(st.tuples(st.sampled_from("abc"), ids, st.integers(0, 40)), max_size=30))
def test_the_budget_holds_and_the_count_is_true(kept: list[tuple[str, list[int], int]]) -> None:
    prefixes: Prefixes[None] = Prefixes(budget=100)
    for session, one, size in kept:
        prefixes.keep(session, one, None, size)
        held = sum(entry.size for entries in prefixes._sessions.values() for entry in entries)
        assert prefixes.size == held <= 100


def test_what_goes_on_takes_the_place_of_its_beginning_and_a_fork_does_not() -> None:
    prefixes: Prefixes[str] = Prefixes(budget=100)
    prefixes.keep("s", [1, 2], "turn one", 10)
    prefixes.keep("s", [1, 2, 3, 4], "turn two", 20)
    prefixes.keep("s", [1, 2, 9], "aside", 5)
    assert prefixes.size == 25
    assert prefixes.find("s", [1, 2, 3, 4, 5]) == (4, "turn two")
    assert prefixes.find("s", [1, 2, 9, 9]) == (3, "aside")
    assert prefixes.find("s", [7]) is None
    assert prefixes.find("another session", [1, 2]) is None
    assert (prefixes.asked, prefixes.found, prefixes.hits) == (5 + 4 + 1 + 2, 4 + 3, 2)


def test_a_prompt_that_grows_is_counted_once() -> None:
    prefixes: Prefixes[str] = Prefixes(budget=100)
    prefixes.keep("s", [1, 2, 3], "before", 10)
    assert prefixes.find("s", [1, 2]) == (2, "before")
    assert prefixes.find("s", [1, 2, 3, 4, 5], before=2) == (3, "before")
    assert prefixes.find("s", [1, 2, 3, 4, 5, 6], before=5) == (3, "before"), "there, though it is no news"
    assert prefixes.counts == Remembered(asked=6, reused=3, hits=2, evicted=0, held_bytes=10)


def test_who_has_been_idle_for_longest_is_forgotten_first() -> None:
    prefixes: Prefixes[str] = Prefixes(budget=30)
    for session in "abc":
        prefixes.keep(session, [1], session, 10)
    prefixes.find("a", [1])
    prefixes.keep("d", [1], "d", 10)
    assert prefixes.find("b", [1]) is None
    assert prefixes.find("a", [1]) == (1, "a")
    prefixes.keep("e", [1], "too large to keep", 31)
    assert prefixes.size == 0
    assert prefixes.evicted == 1 + 4, "b, then everything for what did not fit either"


def test_of_one_session_the_oldest_goes_first_and_the_others_stay() -> None:
    prefixes: Prefixes[str] = Prefixes(budget=30)
    prefixes.keep("idle", [1], "idle", 10)
    prefixes.keep("s", [1], "one", 10)
    prefixes.keep("s", [2], "two", 10)
    prefixes.keep("s", [3], "three", 10)
    assert prefixes.find("idle", [1]) is None, "the idle session pays before the busy one"
    prefixes.keep("s", [4], "four", 10)
    assert [prefixes.find("s", [n]) for n in (1, 2, 3, 4)] == [None, (1, "two"), (1, "three"), (1, "four")]
