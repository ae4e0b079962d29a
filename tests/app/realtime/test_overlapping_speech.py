"""A listener who speaks over an answer that the server plays: it is held, and then goes on or ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.app.realtime.test_playout_profile import PROFILE, Call, calling
from tests.app.realtime.test_session import FakeChunks
from tests.app.rig import silence, tone

LISTENING = replace(PROFILE, streams_input=False)


@asynccontextmanager
async def talked_over(words: str, monkeypatch: pytest.MonkeyPatch, seconds: float = 0.3) -> AsyncGenerator[Call]:
    """A call whose answer has begun to play, and whose user has begun to say ``words``."""
    make = FakeChunks._make

    async def hearing(self: FakeChunks, inputs: Any) -> Any:
        async for chunk in make(self, inputs):
            yield replace_text(chunk, words)

    monkeypatch.setattr(FakeChunks, "_make", hearing)
    async with calling(profile=LISTENING) as call:
        await call.say("session.update", session={"audio": {"input": {"turn_detection": {"type": "server_vad"}}}})
        await call.typed("go on")
        assert call.sent_ms() == 60
        await call.hear(tone(seconds))
        yield call


def replace_text(chunk: Any, words: str) -> Any:
    return type(chunk)(words, final=chunk.final) if type(chunk).__name__ == "Transcript" else chunk


async def test_an_answer_is_held_while_its_listener_speaks_and_goes_on_behind_a_back_channel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with talked_over("Mm-hmm.", monkeypatch) as call:
        await call.later(0.2)
        assert call.sent_ms() == 60, "it is held"
        assert not call.of("input_audio_buffer.speech_started")
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))  # the ears have spoken meanwhile
        await call.later(0.4)
        assert call.sent_ms() == 200, "all of it was said"
        await call.hear(silence(1))
        await call.later(0.1)
    assert call.statuses() == ["completed"]
    assert not call.of("input_audio_buffer.speech_started")
    assert not call.of("conversation.item.truncated")
    assert call.metrics.registry.get_sample_value("parley_underruns_total") == 0


async def test_an_answer_ends_where_it_was_held_if_its_listener_wants_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with talked_over("Stop!", monkeypatch) as call:
        await call.later(0.2)
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))  # the ears have spoken meanwhile
        (truncated,) = call.of("conversation.item.truncated")
        assert truncated["audio_end_ms"] == 60
        (started,) = call.of("input_audio_buffer.speech_started")
        await call.hear(silence(1))
        await call.later(0.4)
        (committed,) = call.of("input_audio_buffer.committed")
        assert committed["item_id"] == started["item_id"]
    assert call.statuses() == ["cancelled", "completed"]


async def test_an_answer_that_nothing_interrupts_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talked_over("Stop!", monkeypatch, seconds=0.0) as call:
        detection = {"type": "server_vad", "interrupt_response": False}
        await call.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
        await call.hear(tone(0.3))
        assert call.of("input_audio_buffer.speech_started")
        await call.later(0.3)
        assert call.sent_ms() == 200


async def test_a_turn_that_its_client_answers_itself_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talked_over("Mm-hmm.", monkeypatch, seconds=0.0) as call:
        detection = {"type": "server_vad", "create_response": False}
        await call.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
        await call.hear(tone(0.3))
        assert call.of("input_audio_buffer.speech_started")
    assert call.statuses() == ["cancelled"]


async def test_a_word_behind_the_last_packet_is_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to go on with: "yes" is the answer to what was asked."""
    async with talked_over("Yes.", monkeypatch, seconds=0.0) as call:
        await call.later(0.2)
        assert call.sent_ms() == 200
        await call.hear(tone(0.3))
        assert call.of("input_audio_buffer.speech_started")


async def test_a_buffer_that_is_cleared_lets_the_answer_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talked_over("Stop!", monkeypatch) as call:
        await call.say("input_audio_buffer.clear")
        await call.later(0.4)
        assert call.sent_ms() == 200
    assert call.statuses() == ["completed"]


async def test_an_answer_that_nothing_interrupts_any_more_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talked_over("Stop!", monkeypatch) as call:
        detection = {"type": "server_vad", "interrupt_response": False}
        await call.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))
        assert call.of("input_audio_buffer.speech_started")
        await call.later(0.4)
        assert call.sent_ms() == 200
