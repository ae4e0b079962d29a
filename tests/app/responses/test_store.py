"""What is kept of responses is bounded, counted once, and its key's alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from app.limits.memory_budget import MemoryBudget, MemoryFull
from app.limits.principal import Principal
from app.responses.store import MESSAGE, PART, KeptResponse, ResponseStore, Turn
from app.settings import Limits
from engine import AudioPart, ImagePart, Message, TextPart, ToolCallPart, ToolResultPart, VideoPart


def kept(most: int = 1000, most_bytes: int = 1_000_000) -> ResponseStore:
    memory = MemoryBudget()
    memory.close()  # freed memory is given back by an event loop's timer
    return ResponseStore(Limits(kept_responses=most, kept_mb=most_bytes / 1e6), memory=memory)


def turn(size: int, previous: Turn | None = None) -> Turn:
    """A turn whose messages take so many bytes."""
    pixels = np.zeros((size - MESSAGE - PART, 1, 1), np.uint8)
    made = Turn((Message("user", (ImagePart(pixels),)),), previous)
    assert made.size == size
    return made


def response(id: str, of: Turn, size: int = 0) -> KeptResponse:
    return KeptResponse({"id": id, "output": [{"id": f"item of {id}"}]}, size, of, "sess")


def test_a_turn_knows_its_size_and_its_conversation_s() -> None:
    parts: list[Any] = [
        TextPart("abc"), ToolCallPart("f", "{}", "c1"), ToolResultPart("c1", "yes"),
        AudioPart(np.zeros(100, np.int16), "hi"), ImagePart(np.zeros((2, 3, 3), np.uint8)),
        VideoPart((np.zeros((2, 2, 3), np.uint8),) * 2, 1.0, np.zeros(5, np.int16)),
    ]  # fmt: skip
    media = 200 + 18 + 24 + 10
    texts = 4 * (3 + 5 + 5 + 2)
    first = Turn(tuple(Message("user", (part,)) for part in parts))
    assert (first.size, first.media_bytes, first.count) == (media + texts + 6 * (MESSAGE + PART), media, 6)
    assert first.chars == texts // 4
    second = Turn((Message("user", (TextPart("字"),)),), first)
    assert (second.size, second.media_bytes, second.count) == (4 + MESSAGE + PART, media, 7)
    assert second.chars == first.chars + 1
    assert second.conversation() == (*first.messages, *second.messages)


def test_a_key_finds_its_own_alone() -> None:
    store = kept()
    store.keep("alice", response("r", turn(1000)))
    assert store.find("alice", "r") is not None
    assert store.item("alice", "item of r") is not None
    assert store.find("bob", "r") is store.item("bob", "item of r") is None
    assert not store.forget("bob", "r")
    store.keep("alice", response("s", turn(1000)))
    assert store.forget("alice", "r")
    assert not store.forget("alice", "r")
    assert store.item("alice", "item of r") is None
    assert store.forget("alice", "s")
    assert (len(store), store.held) == (0, 0)


def test_the_response_that_was_used_longest_ago_goes_first() -> None:
    store = kept(most=2)
    for id in "ab":
        store.keep("", response(id, turn(1000)))
    store.find("", "a")
    store.keep("", response("c", turn(1000)))
    assert [store.find("", id) is not None for id in "abc"] == [True, False, True]
    store.keep("bob", response("d", turn(1000)))
    assert len(store) == 3  # the number is each key's own


def test_a_conversation_is_counted_once_however_many_responses_it_has() -> None:
    store, last = kept(), None
    for n in range(20):
        last = turn(1000, last)
        store.keep("", response(str(n), last, size=10))
    assert store.held == 20 * 1010
    fork = turn(1000, last)
    store.keep("", response("fork", fork, size=10))
    for n in range(19):
        store.forget("", str(n))
    assert store.held == 21 * 1000 + 2 * 10  # the last two still need all of it
    store.forget("", "19")
    assert store.held == 21 * 1000 + 10
    store.forget("", "fork")
    assert store.held == 0


def test_a_turn_that_was_forgotten_while_its_answer_was_made_is_counted_again() -> None:
    store = kept()
    first = turn(1000)
    store.keep("", response("a", first))
    store.forget("", "a")
    store.keep("", response("b", turn(1000, first)))
    assert store.held == 2000
    store.forget("", "b")
    assert store.held == 0


def test_beyond_the_bytes_the_key_that_holds_the_most_loses_its_oldest() -> None:
    store = kept(most_bytes=10_000)
    store.keep("alice", response("small", turn(1000)))
    for n in range(20):
        store.keep("bob", response(str(n), turn(1000)))
    assert store.find("alice", "small") is not None
    assert store.held == 10_000
    assert [store.find("bob", str(n)) is not None for n in (10, 11, 19)] == [False, True, True]


def test_what_is_larger_than_all_may_be_displaces_nothing() -> None:
    store = kept(most_bytes=10_000)
    store.keep("", response("small", turn(1000)))
    store.keep("", response("large", turn(20_000)))
    assert store.find("", "small") is not None
    assert store.find("", "large") is None


def test_nothing_is_left_of_a_withdrawn_key() -> None:
    store = kept()
    first = turn(1000)
    store.keep("alice", response("a", first))
    store.keep("alice", response("b", turn(1000, first)))
    store.keep("bob", response("c", turn(1000)))
    store.withdraw("alice")
    store.withdraw("nobody")
    assert (len(store), store.held) == (1, 1000)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_kept_and_forgotten_the_count_is_true(seed: int) -> None:
    """Against a count made anew of all that can be reached."""
    random_ = random.Random(seed)
    store = kept(most=8, most_bytes=30_000)
    alive: dict[str, dict[str, Turn]] = {"alice": {}, "bob": {}}
    for n in range(300):
        owner = random_.choice(list(alive))
        mine = alive[owner] = {id: one for id, one in alive[owner].items() if store.find(owner, id) is not None}
        if mine and random_.random() < 0.2:
            store.forget(owner, random_.choice(list(mine)))
        else:
            previous = random_.choice([None, *mine.values()])
            mine[str(n)] = turn(random_.randrange(700, 6000), previous)
            store.keep(owner, response(str(n), mine[str(n)], size=7))
        reached, answers = set[Turn](), 0
        for name, ids in alive.items():
            for id, one in ids.items():
                if store.find(name, id) is None:
                    continue
                answers += 1
                walk: Turn | None = one
                while walk is not None:
                    reached.add(walk)
                    walk = walk.previous
        assert store.held == sum(one.size for one in reached) + 7 * answers <= 30_000


def test_a_thousand_chains_are_bounded() -> None:
    store = kept(most=100, most_bytes=200_000)
    last: list[Turn | None] = [None] * 1000
    for n in range(5000):
        chain = n % 1000 if n % 3 else n % 7
        last[chain] = made = turn(1000, last[chain] if n % 50 else None)
        store.keep(f"key {n % 3}", response(str(n), made))
        assert len(store) <= 300
        assert store.held <= 200_000


def test_a_chain_of_two_thousand_turns_is_let_go_without_recursion() -> None:
    store, last = kept(most=1, most_bytes=10_000_000), None
    for n in range(2000):
        last = turn(1000, last)
        store.keep("", response(str(n), last))
    assert len(last.conversation() if last else ()) == 2000
    assert store.held == 2_000_000
    store.forget("", "1999")
    del last
    assert store.held == 0


async def test_stored_responses_count_in_the_servers_memory_and_yield_to_other_things() -> None:
    memory = MemoryBudget(10_000)
    store = ResponseStore(Limits(), memory=memory)
    for id in "abc":
        store.keep("alice", response(id, turn(2000)))
    assert memory.held == memory.held_of("responses") == store.held == 6000
    memory.check(4000, Principal())
    assert len(store) == 3
    memory.check(5000, Principal())
    assert store.find("alice", "a") is None
    assert memory.held == store.held == 4000
    memory.count(7000, Principal())
    store.keep("bob", response("d", turn(2000)))
    assert len(store) == 1
    assert memory.held == 9000
    with pytest.raises(MemoryFull):
        memory.check(4000, Principal())
    assert (len(store), store.held, memory.held_of("responses")) == (0, 0, 0)
    store.withdraw("alice")
