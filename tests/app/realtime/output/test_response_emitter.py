"""One response as a state machine: what is told, in which order, however it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.realtime.conversation.conversation import Conversation, prompt
from app.realtime.output.playout import Packet
from app.realtime.output.response_emitter import ResponseEmitter
from app.realtime.ports import SOCKET, PlayoutProfile
from app.realtime.protocol import server_events
from app.realtime.protocol.items import AssistantAudio, CallItem, MessageItem, MessageText
from app.realtime.protocol.options import Extras, ResponseOptions, SessionOptions, response_options
from app.realtime.protocol.server_events import ResponseUsage
from engine import ModelInfo, TextPart, TokenIds, Usage

MODEL = ModelInfo(name="m", frame_s=0.04, tokenizer="words")


def options(*modalities: str) -> ResponseOptions:
    return response_options(SessionOptions(), {"output_modalities": list(modalities) or ["audio"]})[0]


def packet(seconds: float) -> Packet:
    return Packet(np.zeros(int(seconds * 24_000), np.float32))


def opened(
    kept: bool = True, *modalities: str, line: PlayoutProfile = SOCKET, **ours: Any
) -> tuple[ResponseEmitter, Conversation, list[Any]]:
    told: list[Any] = []
    conversation = Conversation("conv", limit=10, limit_bytes=10**6)
    asked = replace(options(*modalities), parley=Extras(**ours))
    response = ResponseEmitter(asked, conversation if kept else None, MODEL, told.append, line)
    response.open()
    return response, conversation, told


def kinds(told: list[Any]) -> list[str]:
    return [type(notice).__name__ for notice in told]


def test_a_spoken_answer() -> None:
    response, conversation, told = opened()
    response.text("one ", (7,))
    response.reached([(2_400, 3)])
    response.reached([(4_800, 4)])
    response.reached([(7_200, 7)])
    response.audio(packet(0.2))
    response.text("two", (8, 9))
    response.audio(packet(0.1))
    response.used(Usage(5, 3))
    response.close("completed")
    assert kinds(told) == [
        *(
            "ResponseCreatedEvent",
            "MessageCreatedEvent",
            "TextDeltaEvent",
            "AudioDeltaEvent",
            "TextDeltaEvent",
            "AudioDeltaEvent",
        ),
        *("MessageDoneEvent", "ResponseDoneEvent"),
    ]
    item = conversation.items[0]
    assert isinstance(item, MessageItem)
    assert item.token_ids == TokenIds("words", (7, 8, 9))
    assert item.content == (AssistantAudio("one two", ((2_400, 3), (4_800, 4), (7_200, 7)), 7_200),)
    assert told[-1].response.usage == ResponseUsage(5, 3, round(0.3 / 0.04))
    assert told[-1].response.output == (item,)


def test_who_asked_is_told_how_far_the_voice_is_in_the_text() -> None:
    """A mark where the text goes on, one notice for what came together, none before the sound, none after the end."""
    response, _, told = opened(alignment=True)
    response.text("one two", ())
    response.reached([(-480, 0), (480, 0), (1_440, 2), (2_400, 3), (3_360, 3)])
    response.audio(packet(0.1))
    response.reached([(4_320, 3)])
    response.reached([(4_324, 7)])
    response.close("cancelled", "turn_detected", played_samples=0)
    response.reached([(9_600, 8)])
    aligned = [notice for notice in told if isinstance(notice, server_events.AudioAlignmentEvent)]
    assert [notice.marks for notice in aligned] == [((60.0, 2), (100.0, 3)), ((180.167, 7),)]
    assert {notice.ref.item_id for notice in aligned} == {told[1].item.id}
    assert kinds(told)[2:5] == ["TextDeltaEvent", "AudioAlignmentEvent", "AudioDeltaEvent"]


def test_a_letter_that_was_over_before_the_first_sound_counts_from_there() -> None:
    response, _, told = opened(alignment=True)
    response.reached([(-480, 1)])
    assert told[-1].marks == ((0.0, 1),)


def test_sound_may_come_before_its_words() -> None:
    response, _, told = opened()
    response.audio(packet(0.1))
    response.text("one", ())
    assert kinds(told)[:3] == ["ResponseCreatedEvent", "MessageCreatedEvent", "AudioDeltaEvent"]


def test_a_call_beside_a_message_has_an_index_of_its_own() -> None:
    response, conversation, told = opened()
    response.text("Let me see.", ())
    response.call("look", "{}", "call_1")
    response.close("completed")
    places = {type(notice).__name__: notice.ref.index for notice in told if hasattr(notice, "ref")}
    assert (places["MessageDoneEvent"], places["CallDoneEvent"]) == (0, 1)
    assert [type(item) for item in conversation.items] == [MessageItem, CallItem]


def test_an_answer_of_nothing_is_still_one() -> None:
    response, conversation, told = opened()
    response.close("completed")
    assert kinds(told) == ["ResponseCreatedEvent", "ResponseDoneEvent"]
    assert conversation.items == ()


def test_an_answer_that_is_not_kept_leaves_the_conversation_alone() -> None:
    response, conversation, told = opened(False, "text")
    response.text("one", (1,))
    response.call("look", "{}", "")
    response.close("completed")
    assert conversation.items == ()
    assert told[-1].response.conversation_id is None
    assert told[-1].response.output[0].content == (MessageText("one"),)


def test_an_interrupted_answer_keeps_what_was_heard_and_no_token_ids() -> None:
    response, conversation, told = opened()
    response.text("one two three", (1, 2, 3))
    for n, end in enumerate((3, 7, 13), start=1):
        response.reached([(2_400 * n, end)])
    response.audio(packet(0.3))
    response.close("cancelled", "turn_detected", played_samples=5_000)
    item = conversation.items[0]
    assert isinstance(item, MessageItem)
    assert (item.status, item.token_ids) == ("incomplete", None)
    assert isinstance(item.content[0], AssistantAudio)
    assert item.content[0].played_text == "one two"
    assert told[-1].response.reason == "turn_detected"


def test_a_second_interruption_adds_nothing_to_what_was_heard_before_the_first() -> None:
    """The player has dropped the rest, although the clock goes on."""
    response, conversation, _ = opened()
    response.text("one two three", ())
    for n, end in enumerate((3, 7, 13), start=1):
        response.reached([(2_400 * n, end)])
    response.audio(packet(0.3))
    response.close("completed")
    for samples in (2_500, 5_000):
        response.interrupted_after(samples)
        item = conversation.items[0]
        assert isinstance(item, MessageItem)
        assert isinstance(item.content[0], AssistantAudio)
        assert item.content[0].played_text == "one"


def test_one_that_was_never_announced_ends_without_a_word() -> None:
    told: list[Any] = []
    response = ResponseEmitter(options(), None, MODEL, told.append)
    response.close("failed", error=("x", "y"))
    assert told == []
    assert response.closed


def test_a_call_s_arguments_come_in_pieces_and_are_whole_at_its_end() -> None:
    response, conversation, told = opened()
    response.call_piece("look", "call_1", '{"at":')
    response.call_piece("look", "call_1", " 1")
    response.call("look", '{"at": 1}', "call_1")
    response.call("listen", "{}", "call_2")
    response.close("completed")
    assert kinds(told)[1:-1] == [
        "CallCreatedEvent",
        *["CallDeltaEvent"] * 3,
        "CallDoneEvent",
        "CallCreatedEvent",
        "CallDeltaEvent",
        "CallDoneEvent",
    ]
    pieces = [notice.text for notice in told if isinstance(notice, server_events.CallDeltaEvent)]
    assert pieces == ['{"at":', " 1", "}", "{}"]
    assert [item.arguments for item in conversation.items if isinstance(item, CallItem)] == ['{"at": 1}', "{}"]


def test_a_call_that_is_broken_off_is_incomplete_and_in_no_prompt() -> None:
    response, conversation, told = opened()
    response.text("I look.", ())
    response.call_piece("look", "call_1", '{"at":')
    response.close("cancelled", "client_cancelled")
    assert kinds(told)[-3:] == ["CallDoneEvent", "MessageDoneEvent", "ResponseDoneEvent"]
    call = conversation.items[1]
    assert isinstance(call, CallItem)
    assert (call.status, call.arguments) == ("incomplete", '{"at":')
    assert [message.role for message in prompt("", conversation.items[1:])] == []


@pytest.mark.parametrize("outcome", ["completed", "cancelled", "failed", "incomplete"])
@given(steps=st.lists(st.sampled_from(["text", "audio", "piece", "call", "close"]), max_size=10))
def test_whatever_comes_it_ends_once_and_nothing_follows(outcome: Any, steps: list[str]) -> None:
    response, _, told = opened()
    for step in [*steps, "close", "text", "audio", "call", "close"]:
        match step:
            case "text":
                response.text("word ", (1,))
            case "audio":
                response.audio(packet(0.04))
            case "piece":
                response.call_piece("look", "call_1", "{")
            case "call":
                response.call("look", "{}", "")
            case _:
                response.close(outcome)
    names = kinds(told)
    assert names.count("ResponseDoneEvent") == 1
    assert names[-1] == "ResponseDoneEvent"
    assert names.count("MessageCreatedEvent") == names.count("MessageDoneEvent") <= 1


CALL = PlayoutProfile(plays=True)


@pytest.mark.parametrize("outcome", ["cancelled", "failed"])
def test_words_that_never_left_are_cut_where_all_that_left_was_heard(outcome: server_events.Outcome) -> None:
    """Text is told at once, its sound at the listener's pace: an answer may stop when it has run dry."""
    response, conversation, told = opened(line=CALL)
    response.text("one two", ())
    response.reached([(2_400, 3), (4_800, 7)])
    response.audio(packet(0.1))
    response.close(outcome, played_samples=2_400)
    cut = next(notice for notice in told if isinstance(notice, server_events.ItemTruncatedEvent))
    assert (cut.audio_end_ms, cut.played_text) == (100, "one")
    item = conversation.items[0]
    assert isinstance(item, MessageItem)
    assert isinstance(item.content[0], AssistantAudio)
    assert item.content[0].truncated


@pytest.mark.parametrize("modality", ["audio", "text"])
def test_nothing_is_cut_where_all_the_words_were_heard_or_none_is_said(modality: str) -> None:
    response, _, told = opened(True, modality, line=CALL)
    response.text("one", ())
    if modality == "audio":
        response.reached([(2_400, 3)])
        response.audio(packet(0.1))
    response.close("cancelled", played_samples=2_400 if modality == "audio" else 0)
    assert "ItemTruncated" not in kinds(told)


@pytest.mark.parametrize(("outcome", "played"), [("completed", None), ("cancelled", 7_200)])
def test_an_answer_that_the_client_truncates_before_its_end_stays_truncated(outcome: Any, played: int | None) -> None:
    response, conversation, told = opened()
    response.text("one two", ())
    response.reached([(2_400, 3), (7_200, 7)])
    response.audio(packet(0.2))
    (item_id,) = (notice.ref.item_id for notice in told if isinstance(notice, server_events.MessageCreatedEvent))
    response.store_progress("another")
    response.store_progress(item_id)
    assert conversation.truncate(item_id, 0, 150) == "one"
    response.audio(packet(0.2))
    response.close(outcome, played_samples=played)
    (message,) = prompt("", conversation.items)
    assert message.parts == (TextPart("one"),)
