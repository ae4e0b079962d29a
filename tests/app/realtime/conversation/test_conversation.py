"""Order of items, truncation, and the prompt that they make."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from app.realtime.conversation.conversation import ROOT, Conversation, _lightened, prompt
from app.realtime.conversation.sizes import size_of
from app.realtime.protocol.items import (
    AssistantAudio,
    CallItem,
    CallOutputItem,
    Item,
    MessageImage,
    MessageItem,
    MessageText,
    ToolListItem,
    UserAudio,
)
from app.refusal import Refusal
from engine import AudioPart, ImagePart, Message, TextPart, TokenIds, ToolCallPart, ToolResultPart


def typed(id: str, text: str = "hello") -> Item:
    return MessageItem(id=id, role="user", content=(MessageText(text),))


def said(id: str = "a") -> MessageItem:
    spoken = AssistantAudio("one two three", ((24_000, 4), (48_000, 8), (72_000, 13)), 72_000)
    return MessageItem(id=id, role="assistant", content=(spoken,), token_ids=TokenIds("t", (1, 2, 3)))


@pytest.fixture
def conversation() -> Conversation:
    return Conversation("conv_1", limit=10, limit_bytes=10_000)


def test_items_go_to_the_end_to_the_front_or_behind_another(conversation: Conversation) -> None:
    assert conversation.add(typed("a")) is None
    assert conversation.add(typed("b")) == "a"
    assert conversation.add(typed("front"), ROOT) is None
    assert conversation.add(typed("between"), "a") == "a"
    assert [item.id for item in conversation.items] == ["front", "a", "between", "b"]


@pytest.mark.parametrize(
    ("item", "after", "code"),
    [
        (typed("a"), None, "item_create_duplicate_item_id"),
        (typed("b"), "nobody", "item_create_invalid_previous_item_id"),
        (MessageItem(id="b", role="user", content=(UserAudio(np.zeros(6_000, np.int16)),)), None, "conversation_full"),
    ],
)
def test_what_cannot_be_added_changes_nothing(conversation: Conversation, item: Item, after: str, code: str) -> None:
    conversation.add(typed("a"))
    before = conversation.items, conversation.revision
    with pytest.raises(Refusal) as refused:
        conversation.add(item, after)
    assert refused.value.code == code
    assert (conversation.items, conversation.revision) == before


def test_speech_of_long_ago_stays_as_its_words() -> None:
    conversation = Conversation("conv_1", limit=10, limit_bytes=13_000)
    for n in range(4):
        conversation.add(MessageItem(id=f"u{n}", role="user", content=(UserAudio(np.ones(1_500, np.int16)),)))
        if n != 1:
            conversation.transcribe(f"u{n}", f"words {n}")
    kinds = [type(item.content[0]) for item in conversation.items if isinstance(item, MessageItem)]
    assert kinds == [
        MessageText,
        UserAudio,
        UserAudio,
        UserAudio,
    ]  # 14 kB in 13: one had to go, the oldest that was understood
    assert prompt("", conversation.items)[0].parts == (TextPart("words 0"),)


@pytest.mark.fault("I9.2")
def test_what_a_camera_saw_long_ago_makes_room_as_well(conversation: Conversation) -> None:
    """A call with a camera adds a picture a turn; one that a client sent without speech stays."""
    pixels = np.zeros((20, 20, 3), np.uint8)
    conversation.add(MessageItem(id="sent", role="user", content=(MessageImage(pixels, "data:"),)))
    for n in range(6):
        seen = (UserAudio(np.zeros(800, np.int16), f"turn {n}"), MessageImage(pixels, "data:"))
        conversation.add(MessageItem(id=f"turn_{n}", role="user", content=seen))
    kinds = [[type(part) for part in item.content] for item in conversation.items if isinstance(item, MessageItem)]
    assert kinds[:2] == [[MessageImage], [MessageText]]
    assert kinds[-1] == [UserAudio, MessageImage]


def test_text_counts_too(conversation: Conversation) -> None:
    with pytest.raises(Refusal):
        conversation.add(typed("a", "x" * 10_001))


LONG = "n" * 1_000


@pytest.mark.parametrize(
    "item",
    [
        MessageItem(id=LONG, role="user", content=()),
        typed("a", LONG),
        typed("a", "\N{GRINNING FACE}" * 250),
        MessageItem(id="a", role="user", content=(UserAudio(np.zeros(1, np.int16), LONG),)),
        MessageItem(id="a", role="user", content=(MessageImage(np.zeros((1, 1, 3), np.uint8), "data:", LONG),)),
        MessageItem(id="a", role="user", content=(MessageImage(np.zeros((1, 1, 3), np.uint8), LONG),)),
        MessageItem(id="a", role="assistant", content=(AssistantAudio("a", ((1, 1),) * 6),)),
        MessageItem(id="a", role="assistant", content=(MessageText("a"),), token_ids=TokenIds("t", (1,) * 25)),
        CallItem(id=LONG, call_id="c", name="n", arguments=""),
        CallItem(id="a", call_id=LONG, name="n", arguments=""),
        CallItem(id="a", call_id="c", name=LONG, arguments=""),
        CallItem(id="a", call_id="c", name="n", arguments=LONG),
        CallOutputItem(id="a", call_id=LONG, output=""),
        CallOutputItem(id="a", call_id="c", output=LONG),
        ToolListItem(id="a", server_label=LONG),
    ],
)
def test_whatever_an_item_holds_counts(item: Item) -> None:
    """A thousand bytes of it: what is not counted can be any size."""
    Conversation("conv_1", limit=10, limit_bytes=2_200).add(item)
    with pytest.raises(Refusal) as refused:
        Conversation("conv_1", limit=10, limit_bytes=1_500).add(item)
    assert refused.value.code == "conversation_full"


def test_what_is_held_is_the_sum_of_what_is_there(conversation: Conversation) -> None:
    """However items came and went: the running total is that of a conversation that begins with them."""
    rng = np.random.default_rng(17)
    for n in range(300):
        id, act = f"i{rng.integers(12)}", rng.integers(6)
        with suppress(Refusal):
            match act:
                case 0 | 1:
                    conversation.add(MessageItem(id=id, role="user", content=(UserAudio(np.zeros(700, np.int16)),)))
                case 2:
                    conversation.add(typed(id, "x" * int(rng.integers(500))), ROOT)
                case 3:
                    conversation.transcribe(id, f"words {n}")
                case 4:
                    conversation.put(said(id))
                case _:
                    conversation.delete(id)
        held = sum(map(size_of, conversation.items))
        assert conversation._held == held
        light = [_lightened(item) for item in conversation.items]
        assert conversation._spare == held - sum(map(size_of, light))


def test_an_item_that_does_not_fit_takes_nothing_of_the_others(conversation: Conversation) -> None:
    conversation.add(MessageItem(id="a", role="user", content=(UserAudio(np.zeros(2_000, np.int16), "hello"),)))
    before = conversation.items
    with pytest.raises(Refusal):
        conversation.add(typed("b", "x" * 10_000))
    assert conversation.items == before


def test_an_item_weighs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were all weighed for each, a conversation of 2000 items of 64 texts would take a minute to put together."""
    weighed: list[str] = []

    def size(item: Item) -> int:
        weighed.append(item.id)
        return size_of(item)

    monkeypatch.setattr("app.realtime.conversation.size_of", size)
    conversation = Conversation("conv_1", limit=2_000, limit_bytes=10_000_000)
    for n in range(200):
        conversation.add(typed(f"i{n}"))
        conversation.delete(f"i{n // 2}") if n % 2 else None
    assert len(weighed) <= 3 * 200


def test_a_cut_answer_goes_back_to_the_prompt_as_far_as_it_was_heard(conversation: Conversation) -> None:
    conversation.add(said())
    assert prompt("", conversation.items) == (
        Message("assistant", (TextPart("one two three"),), TokenIds("t", (1, 2, 3))),
    )
    conversation.truncate("a", 0, 2_000)
    assert prompt("", conversation.items) == (Message("assistant", (TextPart("one two"),)),)
    conversation.truncate("a", 0, 0)
    assert prompt("", conversation.items) == ()


@pytest.mark.parametrize(
    ("id", "index", "end_ms", "code"),
    [
        ("nobody", 0, 0, "item_truncate_invalid_item_id"),
        ("a", 1, 0, "invalid_value"),
        ("a", 0, 3_001, "invalid_value"),
        ("a", 0, -1, "invalid_value"),
        ("typed", 0, 0, "unsupported_content_type"),
    ],
)
def test_what_cannot_be_cut(conversation: Conversation, id: str, index: int, end_ms: int, code: str) -> None:
    conversation.add(said())
    conversation.add(typed("typed"))
    with pytest.raises(Refusal) as refused:
        conversation.truncate(id, index, end_ms)
    assert refused.value.code == code


def test_the_prompt_has_every_kind_of_part(conversation: Conversation) -> None:
    pcm, pixels = np.ones(160, np.int16), np.zeros((2, 2, 3), np.uint8)
    conversation.add(
        MessageItem(id="u", role="user", content=(MessageImage(pixels, "data:"), UserAudio(pcm), MessageText("what?")))
    )
    conversation.add(CallItem(id="c", call_id="call_1", name="look", arguments="{}"))
    conversation.add(CallOutputItem(id="o", call_id="call_1", output="a cat"))
    conversation.transcribe("u", "what is it")
    assert prompt("Be kind.", conversation.items) == (
        Message("system", (TextPart("Be kind."),)),
        Message("user", (ImagePart(pixels), AudioPart(pcm, "what is it"), TextPart("what?"))),
        Message("assistant", (ToolCallPart("look", "{}", "call_1"),)),
        Message("tool", (ToolResultPart("call_1", "a cat"),)),
    )


def test_an_item_that_is_gone_is_not_brought_back(conversation: Conversation) -> None:
    conversation.add(said())
    conversation.delete("a")
    conversation.put(said())
    assert conversation.items == ()
    with pytest.raises(Refusal):
        conversation.delete("a")


def test_a_transcript_does_not_make_an_answer_stale(conversation: Conversation) -> None:
    conversation.add(MessageItem(id="u", role="user", content=(UserAudio(np.ones(160, np.int16)),)))
    before = conversation.revision
    conversation.transcribe("u", "hello")
    assert conversation.revision == before
    assert conversation.user_audio("u") is not None
