"""Which slot a request gets, and whether it may reuse what the slot holds."""

from __future__ import annotations

import threading
from queue import Queue
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.worker.llm.conversation_slots import EVERYBODY, ConversationSlots


def said(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def ask(slots: ConversationSlots, owner: str | None, *texts: str, refused: bool = False) -> tuple[int, bool]:
    with slots.hold(said(*texts), owner) as held:
        found = held.slot.number, held.may_reuse
        if not refused:
            held.computing()
    return found


def test_a_conversation_gets_its_slot_again_and_a_new_one_the_oldest() -> None:
    slots = ConversationSlots(3)
    assert [ask(slots, "a", text * 100)[0] for text in ("x", "y", "z")] == [0, 1, 2]
    assert ask(slots, "a", "x" * 100, "more") == (0, True)
    assert ask(slots, "a", "w" * 100) == (1, True)


def test_conversations_in_progress_have_different_slots() -> None:
    slots = ConversationSlots(2)
    with slots.hold(said("x"), "a") as one, slots.hold(said("x"), "a") as two:
        assert one.slot is not two.slot


def test_a_conversation_waits_for_its_slot_while_an_abandoned_answer_ends() -> None:
    """Another slot would compute the whole prompt anew."""
    slots = ConversationSlots(2)
    left, found = threading.Event(), Queue[tuple[int, bool]]()
    with slots.hold(said("x" * 400), "a", left.is_set) as held:
        held.computing()
        left.set()
        turn = threading.Thread(target=lambda: found.put(ask(slots, "a", "x" * 400, "turn")))
        turn.start()
        turn.join(0.05)
    turn.join()
    assert found.get() == (0, True)


def test_a_slot_of_another_owner_is_reused_only_once_it_is_the_own() -> None:
    slots = ConversationSlots(1)
    assert ask(slots, "a", "x") == (0, True)
    assert ask(slots, "b", "x", refused=True) == (0, False)
    assert ask(slots, "b", "x") == (0, False)
    assert ask(slots, "b", "x") == (0, True)
    assert ask(slots, EVERYBODY, "x") == (0, False)
    assert ask(slots, "a", "x") == (0, True)


def test_half_of_a_conversation_is_not_given_up_for_its_beginning() -> None:
    slots = ConversationSlots(2)
    instructions = "i" * 400
    assert ask(slots, "a", instructions, "x" * 1000)[0] == 0
    assert ask(slots, "a", instructions, "y" * 100)[0] == 1
    assert ask(slots, "a", instructions, "z" * 100)[0] == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text("xy", max_size=3), st.booleans()), max_size=40))
def test_nobody_reuses_what_another_owner_computed(requests: list[tuple[str, str, bool]]) -> None:
    slots, computed = ConversationSlots(2), dict[int, str]()
    for owner, text, refused in requests:
        number, reuses = ask(slots, owner, text, refused=refused)
        assert reuses == (computed.get(number, owner) == owner)
        if not refused:
            computed[number] = owner
