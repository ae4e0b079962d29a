"""Prompts that fit the context: which turns are left out, and when."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.realtime.conversation.truncation import Truncation
from app.realtime.protocol.items import CallItem, CallOutputItem, Item, MessageItem, MessageText, UserAudio
from app.realtime.protocol.options import ResponseOptions, RetentionRatio, SessionOptions, TokenLimits, response_options
from app.refusal import Refusal
from engine import ModelInfo, TokenCost, TokenIds

COST = TokenCost(character=1.0, instruction=1.0, audio_s=10.0, image=50.0, message=0.0)
MODEL = ModelInfo(name="m", context=150, cost=COST, tokenizer="t")  # of which 50 are the answer's
ALL = RetentionRatio(retention_ratio=1.0)


def options(**patch: Any) -> ResponseOptions:
    return response_options(SessionOptions(), patch)[0]


def said(number: int, role: Any = "user", length: int = 10) -> Item:
    return MessageItem(id=f"{role}{number}", role=role, content=(MessageText("x" * length),))


def turns(count: int, length: int = 10) -> tuple[Item, ...]:
    """Turns of twice ``length`` tokens."""
    return tuple(said(n, role, length) for n in range(count) for role in ("user", "assistant"))


def ids(count: int, tokenizer: str = "t") -> TokenIds:
    return TokenIds(tokenizer, tuple(range(count)))


def test_what_fits_is_all_there() -> None:
    items = turns(5)
    assert Truncation(MODEL).fit("auto", items, options()) == items
    assert Truncation(MODEL).fit("disabled", items, options()) == items


def test_an_answer_counts_as_many_tokens_as_it_has() -> None:
    """It returns as the ids that it was made of, and some texts have more of them than characters suggest."""
    dense = MessageItem(id="dense", role="assistant", content=(MessageText("x" * 10),), token_ids=ids(90))
    items = (said(0), dense, *turns(1)[:1])
    assert Truncation(MODEL).fit("auto", items, options()) == items[2:]
    thin = MessageItem(id="thin", role="assistant", content=(MessageText("x" * 90),), token_ids=ids(10))
    items = (said(0), thin, *turns(1)[:1])
    assert Truncation(MODEL).fit("auto", items, options()) == items
    foreign = replace(thin, token_ids=ids(10, "of another model"))
    items = (said(0), foreign, *turns(1)[:1])
    assert Truncation(MODEL).fit("auto", items, options()) == items[2:], "its text is encoded anew"


@pytest.mark.fault("I9.1")
def test_the_oldest_turns_go_whole_and_the_prompt_grows_again_from_there() -> None:
    cut = Truncation(MODEL)
    assert cut.fit(ALL, turns(6), options()) == turns(6)[2:]
    assert cut.fit(ALL, turns(7), options()) == turns(7)[4:]


def test_a_prompt_s_beginning_lasts_for_some_turns() -> None:
    """With it what was computed of it: a conversation longer than the context began anew with every turn."""
    cut = Truncation(MODEL)
    firsts = [cut.fit("auto", turns(n), options())[0].id for n in range(5, 13)]
    assert firsts == ["user0", "user3", "user3", "user3", "user6", "user6", "user6", "user9"]


def test_a_ratio_cuts_deeper_and_then_for_some_turns_not_at_all() -> None:
    cut, rule = Truncation(MODEL), RetentionRatio(retention_ratio=0.5)
    firsts = [cut.fit(rule, turns(n), options())[0].id for n in range(5, 11)]
    assert firsts == ["user0", "user4", "user4", "user4", "user4", "user8"]


def test_a_limit_of_the_client_s_own() -> None:
    rule = RetentionRatio(retention_ratio=1.0, token_limits=TokenLimits(post_instructions=45))
    assert len(Truncation(MODEL).fit(rule, turns(4), options())) == 4


def test_instructions_tools_and_the_answer_take_their_room() -> None:
    def kept(**patch: Any) -> int:
        return len(Truncation(MODEL).fit(ALL, turns(9), options(**patch)))

    assert kept() == 10
    assert kept(max_output_tokens=10) == 14
    assert kept(instructions="x" * 40) == 6
    assert kept(tools=[{"type": "function", "name": "look", "parameters": {"type": "object"}}]) < 10


@pytest.mark.fault("I9.1")
def test_where_it_is_forbidden_it_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        Truncation(MODEL).fit("disabled", turns(6), options())
    assert refused.value.code == "context_length_exceeded"


def test_the_last_turn_stays_however_long() -> None:
    items = (*turns(3), said(9, length=1000))
    assert Truncation(MODEL).fit("auto", items, options()) == items[-1:]


def test_a_call_and_its_output_stay_with_the_turn_that_asked() -> None:
    call = CallItem(id="c", call_id="1", name="look", arguments="{}" * 20)
    output = CallOutputItem(id="o", call_id="1", output="x" * 40)
    items = (*turns(1), said(1), call, output, said(2, length=60))
    assert Truncation(MODEL).fit("auto", items, options()) == items[-1:]


def test_a_deleted_item_moves_no_cut_forward() -> None:
    cut = Truncation(MODEL)
    kept = cut.fit("auto", turns(6), options())
    assert cut.fit("auto", kept[1:], options()) == kept[1:]


def test_an_answer_about_something_else_moves_no_cut() -> None:
    """One beside the conversation, about the newest turn and long texts of its own."""
    cut, newest = Truncation(MODEL), turns(4)[-2:]
    aside = (said(100, length=10_000), said(101, "assistant"), *newest)
    assert cut.fit("auto", aside, options(), remember=False) == newest
    assert cut.fit("auto", turns(4), options()) == turns(4)
    assert cut.fit("auto", aside, options()) == newest
    assert cut.fit("auto", turns(4), options()) == newest, "the control"


def test_half_of_a_prompt_that_is_too_long_is_kept_from_then_on() -> None:
    cut, items = Truncation(MODEL), turns(4)
    kept = cut.halve("auto", items)
    assert kept == items[4:]
    assert cut.fit("auto", (*items, said(9)), options())[0].id == "user2"


def test_what_is_about_something_else_is_halved_and_moves_no_cut() -> None:
    cut = Truncation(MODEL)
    assert cut.halve("auto", turns(4), remember=False) == turns(4)[4:]
    assert cut.fit("auto", turns(4), options()) == turns(4)


def test_messages_that_were_never_answered_are_left_out_before_the_newest() -> None:
    """A turn that no model can read stayed in the conversation, and each later message became a part of it."""
    cut, items = Truncation(MODEL), (said(0, length=1000), said(1), said(2))
    assert cut.halve("auto", items) == items[1:]
    assert cut.fit("auto", items, options()) == items[1:]
    assert cut.halve("auto", items[2:]) is None
    assert cut.halve("auto", items[2:], live=True) == (), "the words of a live turn follow"
    assert cut.halve("disabled", items) is None


def test_dense_text_counts_as_what_the_model_counted() -> None:
    """Each emoji may be four tokens; the conversation was never cut for them."""
    cut, answer = Truncation(MODEL), MessageItem(id="dense", role="assistant", content=(MessageText("😀" * 24),))
    items = (said(0), answer, said(1))
    assert cut.fit("auto", items, options()) == items
    cut.counts.read((said(0),), 0, 10)
    cut.counts.wrote((answer,), 90)
    assert cut.fit("auto", items, options()) == items[2:]


def test_speech_counts_by_its_length() -> None:
    speech = MessageItem(id="s", role="user", content=(UserAudio(np.zeros(16_000 * 7, np.int16)),))
    assert Truncation(MODEL).fit(ALL, (*turns(2), speech, said(3, "assistant")), options())[0].id == "user1"


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), st.integers(0, 60)), max_size=30))
def test_any_conversation_fits_or_is_one_turn(sizes: list[tuple[str, int]]) -> None:
    items = tuple(said(n, role, length) for n, (role, length) in enumerate(sizes))
    kept = Truncation(MODEL).fit("auto", items, options())
    assert kept == items[len(items) - len(kept) :]
    speakers = [item.role for item in kept if isinstance(item, MessageItem)]
    one_turn = sum(a != "user" and b == "user" for a, b in pairwise(speakers)) == 0
    assert sum(length for _, length in sizes[len(items) - len(kept) :]) <= 100 or one_turn
