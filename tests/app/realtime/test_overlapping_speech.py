"""A listener who speaks over an answer that the server plays: it is held, and then goes on or ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.realtime.ports import PlayoutProfile
from tests.app.realtime.test_playout_profile import PROFILE, Call, calling
from tests.app.realtime.test_session import FakeChunks
from tests.app.rig import silence, tone

LISTENING = replace(PROFILE, streams_input=False)


@asynccontextmanager
async def talked_over(
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float = 0.3,
    profile: PlayoutProfile = LISTENING,
    **settings: Any,
) -> AsyncGenerator[Call]:
    """A call whose answer has begun to play, and whose user has begun to say ``words``."""
    make = FakeChunks._make

    async def hearing(self: FakeChunks, inputs: Any) -> Any:
        async for chunk in make(self, inputs):
            yield replace_text(chunk, words)

    monkeypatch.setattr(FakeChunks, "_make", hearing)
    async with calling(profile=profile) as call:
        audio = {"input": {"turn_detection": {"type": "server_vad"}}}
        await call.say("session.update", session={"audio": audio, **settings})
        await call.typed("go on")
        assert call.sent_ms() >= 60
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


PAUSED, RESUMED = "parley.output_audio.paused", "parley.output_audio.resumed"


@asynccontextmanager
async def client_playing(
    words: str, monkeypatch: pytest.MonkeyPatch, lead_s: float = 0.04, **parley: Any
) -> AsyncGenerator[Call]:
    """A client that plays the answer itself, whose user has begun to say ``words`` over it."""
    profile = replace(LISTENING, plays=False, lead_s=lead_s, lag_s=lambda: 0.0)
    async with talked_over(words, monkeypatch, 0.3, profile, parley=parley) as call:
        yield call


async def test_a_client_that_can_pause_pauses_at_once_and_goes_on_after_a_backchannel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with client_playing("Mm-hmm.", monkeypatch, pauses=True) as call:
        assert call.order(PAUSED, RESUMED) == [PAUSED]
        await call.later(0.2)
        assert call.sent_ms() == 60, "nothing is sent to a player that has paused"
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))
        assert call.order(PAUSED, RESUMED) == [PAUSED, RESUMED]
        assert call.sent_ms() == 60, "the player still has what it had when it paused"
        await call.later(0.2)
        assert call.sent_ms() == 200
    assert call.statuses() == ["completed"]
    assert not call.of("input_audio_buffer.speech_started")


async def test_a_client_that_has_paused_is_interrupted_by_the_start_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_playing("Stop!", monkeypatch, pauses=True) as call:
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))
        order = call.order(PAUSED, RESUMED, "input_audio_buffer.speech_started")
        assert order == [PAUSED, "input_audio_buffer.speech_started"]
    assert call.statuses() == ["cancelled"]


async def test_the_rest_of_an_answer_that_was_sent_is_paused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is paused it does not end: a word after its end in real time is no turn."""
    monkeypatch.setattr("tests.app.realtime.test_session.WORD", np.full(9_600, 0.1, np.float32))
    async with client_playing("Mm-hmm.", monkeypatch, lead_s=1.5, pauses=True) as call:
        assert call.statuses() == ["completed"], "0.8 s were sent at once"
        await call.later(0.4)
        await call.hear(tone(0.1))
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))
        assert call.order(PAUSED, RESUMED) == [PAUSED, RESUMED]
        await call.hear(silence(0.2))  # 1 s has passed since the answer began
        await call.hear(tone(0.25))
        assert call.order(PAUSED, RESUMED) == [PAUSED, RESUMED, PAUSED], "the rest still plays"
    assert not call.of("input_audio_buffer.speech_started")


async def test_other_clients_play_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_playing("Mm-hmm.", monkeypatch) as call:
        await call.later(0.2)
        assert call.sent_ms() == 200
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))
        assert not call.order(PAUSED, RESUMED)


async def test_where_the_server_plays_it_pauses_without_these_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talked_over("Mm-hmm.", monkeypatch, parley={"pauses": True}) as call:
        await call.later(0.2)
        assert call.sent_ms() == 60
        await call.hear(silence(0.3))
        await call.hear(silence(0.1))
        assert not call.order(PAUSED, RESUMED)
