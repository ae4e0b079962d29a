"""What the user was heard to say: the words so far, and the last word."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.realtime.conversation.conversation import Conversation
from app.realtime.output.transcripts import CAPTIONS, Transcripts
from app.realtime.protocol.items import MessageItem, UserAudio
from app.realtime.protocol.options import SessionOptions, session_options
from app.realtime.protocol.server_events import (
    TranscriptionCompletedEvent,
    TranscriptionDeltaEvent,
    TranscriptionFailedEvent,
    TranscriptionPartialEvent,
)

ANYONE: Any = None


def opened(**session: Any) -> tuple[Transcripts, Conversation, list[Any]]:
    """Transcripts of a conversation whose first item, "a", is not heard yet."""
    told: list[Any] = []
    conversation = Conversation("conv", limit=10, limit_bytes=10**6)
    options = session_options(SessionOptions(), session)[0]
    return Transcripts("sess", ANYONE, conversation, options, told.append), conversation, told


def committed(conversation: Conversation, id: str) -> None:
    conversation.add(MessageItem(id=id, role="user", content=(UserAudio(np.zeros(16_000, np.int16)),)))


def test_words_are_told_when_they_change_and_none_are_taken_back_by_a_request_that_catches_up() -> None:
    transcripts, conversation, told = opened(parley={"partials": True})
    for words in ("what", "what is", "what is", "", "what", "what is", "what is it", "what was it"):
        transcripts.show_partial("a", words, committed=False)
    committed(conversation, "a")
    transcripts.complete("a", "what was it")
    transcripts.show_partial("a", "what was it not", committed=False)  # another request's ears, too late
    assert told == [
        *(
            TranscriptionPartialEvent("a", words, final=False)
            for words in ("what", "what is", "what is it", "what was it")
        ),
        TranscriptionPartialEvent("a", "what was it", final=True),
    ]


def test_each_item_has_words_of_its_own() -> None:
    transcripts, _, told = opened(parley={"partials": True})
    for id, words in (("a", "what is"), ("b", "what"), ("b", "what else")):
        transcripts.show_partial(id, words, committed=False)
    assert [(notice.item_id, notice.transcript) for notice in told] == [
        *(("a", "what is"), ("b", "what"), ("b", "what else")),
    ]


def test_the_protocols_own_events_stay_the_last() -> None:
    transcripts, conversation, told = opened(parley={"partials": True}, audio={"input": {"transcription": {}}})
    committed(conversation, "a")
    committed(conversation, "b")
    transcripts.show_partial("a", "hell", committed=False)
    transcripts.complete("a", "hello")
    transcripts.show_partial("b", "hell", committed=False)
    transcripts.fail("b")
    assert told[1:4] == [
        TranscriptionDeltaEvent("a", 0, "hello"),
        TranscriptionPartialEvent("a", "hello", final=True),
        TranscriptionCompletedEvent("a", "hello", 1.0),
    ]
    assert told[5] == TranscriptionPartialEvent("b", "hell", final=True)
    assert isinstance(told[6], TranscriptionFailedEvent)


def test_without_the_wish_only_the_protocols_events_are_told() -> None:
    transcripts, conversation, told = opened(audio={"input": {"transcription": {}}})
    transcripts.show_partial("a", "hell", committed=False)
    committed(conversation, "a")
    transcripts.complete("a", "hello")
    assert told == [TranscriptionDeltaEvent("a", 0, "hello"), TranscriptionCompletedEvent("a", "hello", 1.0)]


def test_stable_words_are_sent_before_the_turn_is_committed() -> None:
    transcripts, conversation, told = opened(audio={"input": {"transcription": {}}})
    for words in ("what", "what is", "what is it"):
        transcripts.show_partial("a", words, committed=False)
    transcripts.show_partial("b", "and", committed=False)  # the next turn, before the first one's transcript
    committed(conversation, "a")
    transcripts.complete("a", "what is it")
    deltas = [event.delta for event in told if isinstance(event, TranscriptionDeltaEvent)]
    assert deltas == ["what", " is", " it"]


def test_a_deleted_item_has_no_captions() -> None:
    transcripts, conversation, told = opened(parley={"partials": True}, audio={"input": {"transcription": {}}})
    committed(conversation, "a")
    conversation.delete("a")
    transcripts.show_partial("a", "what is", committed=True)
    transcripts.show_partial("a", "what is it", committed=True)
    transcripts.complete("a", "what is it")
    transcripts.fail("a")
    assert not told


def test_items_without_interim_words_leave_the_captions_of_others() -> None:
    transcripts, conversation, told = opened(audio={"input": {"transcription": {}}})
    for words in ("what", "what is", "what is it"):
        transcripts.show_partial("spoken", words, committed=False)
    for number in range(CAPTIONS):
        transcripts.show_partial(f"deleted {number}", "hello", committed=True)
    committed(conversation, "spoken")
    transcripts.complete("spoken", "what is it")
    deltas = [event.delta for event in told if isinstance(event, TranscriptionDeltaEvent)]
    assert deltas == ["what", " is", " it"]


def test_captions_of_turns_that_never_end_are_forgotten() -> None:
    transcripts, _, _ = opened(audio={"input": {"transcription": {}}})
    for number in range(100):
        transcripts.show_partial(f"item {number}", "what", committed=False)
    assert len(transcripts._captions) <= CAPTIONS
