"""The session between its input and its output: what each turn event does to answers, and what answers do to turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from app.settings import Limits, TurnSettings
from engine import StageFailed
from tests.app.realtime.test_session import FakeEngine, Talk, talking
from tests.app.rig import silence, tone


async def detect(talk: Talk, transcribe: bool = False, **detection: Any) -> None:
    heard = {"transcription": {}} if transcribe else {}
    audio = {"input": {"turn_detection": {"type": "server_vad", **detection}, **heard}}
    await talk.say("session.update", session={"audio": audio})


async def test_a_turn_that_gets_no_answer_is_transcribed_while_it_is_spoken() -> None:
    async with talking() as talk:
        await detect(talk, transcribe=True, create_response=False)
        await talk.hear(tone(0.3))
        (asked,) = talk.engine.requests
        assert asked.wants == frozenset({"transcript"})
        await talk.hear(silence(0.7))
        assert len(talk.of("conversation.item.input_audio_transcription.completed")) == 1
        assert not talk.of("response.created")
    assert len(talk.engine.asked) == 1


async def test_the_silence_after_an_answer_is_answered_itself_and_only_then() -> None:
    async with talking() as talk:
        await detect(talk, idle_timeout_ms=1000)
        await talk.hear(silence(1.5))
        assert not talk.of("input_audio_buffer.timeout_triggered"), "nobody has answered yet"
        await talk.typed("hi")
        talk.now_s += 10
        await talk.hear(silence(0.9))
        assert not talk.of("input_audio_buffer.timeout_triggered")
        await talk.hear(silence(0.4))
        (timeout,) = talk.of("input_audio_buffer.timeout_triggered")
        assert timeout["audio_end_ms"] - timeout["audio_start_ms"] == pytest.approx(1000, abs=40)
        assert talk.statuses() == ["completed", "completed"]


async def test_no_silence_is_answered_while_an_answer_is_under_way() -> None:
    async with talking() as talk:
        await detect(talk, idle_timeout_ms=500)
        await talk.typed("hi")
        talk.now_s += 10
        await talk.typed("wait")
        await talk.hear(silence(2))
        assert not talk.of("input_audio_buffer.timeout_triggered")


async def test_what_plays_is_not_taken_for_the_user_and_what_was_stopped_plays_no_more() -> None:
    """An echo 20 dB below the answer starts no turn; the same sound does once the answer was cancelled."""
    async with talking() as talk:
        heard: list[tuple[str, int]] = []
        echo = talk.session._input.voice._echo
        playing, stopped = echo.playing, echo.stopped
        echo.playing = lambda pcm: (heard.append(("playing", len(pcm))), playing(pcm))[1]  # type: ignore[method-assign]
        echo.stopped = lambda: (heard.append(("stopped", 0)), stopped())[1]  # type: ignore[method-assign]
        await talk.typed("hi")
        played = sum(samples for what, samples in heard if what == "playing")
        assert played == pytest.approx(0.2 * 16_000, abs=50), "both words, at the microphone's rate"
        await talk.hear(tone(0.3))
        assert heard[-1] == ("stopped", 0), "a barge-in recalls what was not played yet"


async def test_a_word_after_a_response_outside_the_conversation_was_heard_is_a_turn_at_once() -> None:
    """While an answer plays, speech this short is not a turn yet."""
    async with talking() as talk:
        await talk.typed("hi", conversation="none")
        assert talk.statuses() == ["completed"]
        await talk.hear(silence(0.5))  # it lasts 200 ms
        await talk.hear(tone(0.13))
        assert len(talk.of("input_audio_buffer.speech_started")) == 1


async def test_how_long_an_answer_takes_decides_how_early_it_is_begun() -> None:
    async with talking(turns=TurnSettings(guess_ms=120)) as talk:
        speculation = talk.session._input.speculation
        assert speculation.takes_ms is None

        class Ledger:
            terms, ttfa_ms = (("queue", 80.0),), 80.0

        await talk.hear(tone(0.3))
        talk.engine.asked[0].ledger = Ledger()  # type: ignore[assignment]
        await talk.hear(silence(0.7))
        assert talk.statuses() == ["completed"]
        assert speculation.takes_ms == pytest.approx(80.0)


async def test_a_turn_that_has_no_room_is_refused_once_and_its_request_is_dropped() -> None:
    async with talking(limits=Limits(items=1)) as talk:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        await talk.say("conversation.item.create", item=item)
        await talk.hear(tone(0.3))
        assert talk.engine.open_now == 1
        await talk.hear(silence(0.7))
        assert [event["error"]["code"] for event in talk.of("error")] == ["conversation_full"]
        assert talk.engine.open_now == 0
        await talk.hear(silence(0.7))
        assert len(talk.of("error")) == 1
        assert not talk.of("response.created")


async def test_a_turn_whose_prompt_is_too_long_is_refused_and_still_transcribed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeEngine, "model", replace(FakeEngine.model, context=300))
    async with talking() as talk:
        await detect(talk, transcribe=True)
        await talk.say("session.update", session={"truncation": "disabled"})
        for role, kind in (("user", "input_text"), ("assistant", "output_text")) * 4:
            item = {"type": "message", "role": role, "content": [{"type": kind, "text": "word " * 60}]}
            await talk.say("conversation.item.create", item=item)
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.7))
        assert [event["error"]["code"] for event in talk.of("error")] == ["context_length_exceeded"]
        assert len(talk.of("conversation.item.input_audio_transcription.completed")) == 1


async def test_a_silence_that_has_no_room_is_refused_once() -> None:
    async with talking(limits=Limits(items=2)) as talk:
        await detect(talk, idle_timeout_ms=300)
        await talk.typed("hi")  # the question and the answer: the conversation is full
        talk.now_s += 10
        await talk.hear(silence(2))
        assert len(talk.of("input_audio_buffer.timeout_triggered")) == len(talk.of("error")) == 1


async def test_the_words_of_a_turn_that_the_client_answers_itself_are_told_though_it_asks_for_nothing() -> None:
    async with talking() as talk:
        await talk.say("session.update", session={"audio": {"input": {"turn_detection": None, "transcription": {}}}})
        await talk.hear(tone(0.3))
        talk.engine.refuses = StageFailed("no ears")
        await talk.say("session.update", session={"instructions": "Be kind."})  # what was prepared holds no more
        talk.engine.refuses = None
        await talk.hear(np.zeros(2400, np.int16))
        await talk.say("input_audio_buffer.commit")
        assert len(talk.of("conversation.item.input_audio_transcription.completed")) == 1
