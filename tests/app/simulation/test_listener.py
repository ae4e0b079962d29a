"""What the listener records of the server's events, and what it sends in return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.client import (
    AudioDelta,
    CallDone,
    Error,
    Event,
    PlaybackPaused,
    PlaybackResumed,
    ResponseCreated,
    ResponseDone,
    SpeechStarted,
    TextDelta,
)
from app.simulation.listener import CallListener, TurnRecord

SECOND = np.full(24_000, 8000, "<i2").tobytes()


def created(name: str, **fields: Any) -> Event:
    return ResponseCreated({"id": name, **fields})


def sound(name: str, seconds: int = 1) -> Event:
    return AudioDelta(name, f"item_{name}", SECOND * seconds)


def done(name: str, status: str = "completed", **details: Any) -> Event:
    return ResponseDone({"id": name, "status": status, "status_details": details})


SPEECH = SpeechStarted("item", 0)


class Heard(CallListener):
    """A listener whose first turn was answered by three seconds of sound, from second 2 on."""

    def __init__(self, *, ended: bool = False) -> None:
        super().__init__({"set_timer": {"started": True}})
        self.begin("hello", 0.0).turn_over_s = 1.0
        self.all(1.5, created("r1"))
        self.all(2.0, TextDelta("r1", "i", "Hello."), sound("r1", 3))
        if ended:
            self.all(2.1, done("r1"))

    def all(self, at_s: float, *events: Event) -> list[dict[str, Any]]:
        return [reply for event in events for reply in self.take(event, at_s)]

    def interrupted(self, at_s: float = 3.0) -> TurnRecord:
        turn = self.begin("stop", at_s, self.playing(at_s))
        assert turn.over is not None
        return turn


def test_an_answer_is_recorded_with_its_times() -> None:
    heard = Heard()
    (turn,) = heard.turns
    assert (turn.text, turn.first_audio_ms, turn.cut) == ("Hello.", 1000.0, False)
    assert heard.left_s(2.1) is None, "more of the answer may follow"
    heard.all(2.2, done("r1"))
    assert heard.left_s(2.5) == pytest.approx(2.5)
    assert heard.left_s(9.0) == 0.0


def test_an_answer_before_the_end_of_the_turn_cuts_it() -> None:
    listener = Heard(ended=True)
    turn = listener.begin("my number is … five", 6.0)
    listener.all(7.0, created("r2"))
    assert turn.cut


def test_a_line_spoken_while_a_tool_runs_is_no_answer() -> None:
    heard = Heard(ended=True)
    turn = heard.begin("next", 6.0)
    heard.all(7.0, created("r2", conversation_id=None), sound("r2"))
    assert (turn.answers, turn.first_audio_ms) == ([], None)


def test_a_failure_and_an_error_are_recorded() -> None:
    heard = Heard()
    heard.all(2.5, done("r1", "failed", error={"message": "the model is gone"}))
    heard.all(2.6, Error({"code": "bad", "message": "no"}))
    assert heard.turns[0].errors == ["the model is gone", "bad: no"]


def test_the_result_of_a_tool_is_sent_and_its_answer_awaited() -> None:
    heard = Heard(ended=True)
    turn = heard.begin("timer", 6.0)
    replies = heard.all(7.0, created("r2"), CallDone("r2", "c1", "set_timer", '{"minutes": 1}'), done("r2"))
    assert [reply["type"] for reply in replies] == ["conversation.item.create", "response.create"]
    assert replies[0]["item"] == {"type": "function_call_output", "call_id": "c1", "output": '{"started":true}'}
    assert heard.left_s(7.1) is None
    heard.all(8.0, created("r3"), done("r3"))
    assert heard.left_s(8.0) == 0.0
    assert [call.name for call in turn.calls] == ["set_timer"]


def test_a_tool_of_the_server_is_left_to_the_server() -> None:
    heard = Heard(ended=True)
    heard.begin("timer", 6.0)
    assert heard.all(7.0, created("r2"), CallDone("r2", "c1", "other", "{}"), done("r2")) == []


def test_an_interrupted_answer_is_truncated_where_it_stopped() -> None:
    heard = Heard()
    turn = heard.interrupted()
    replies = heard.all(3.25, SPEECH, done("r1", "cancelled"))
    assert turn.stop_ms == 250.0
    assert replies == [
        {"type": "conversation.item.truncate", "item_id": "item_r1", "content_index": 0, "audio_end_ms": 1250}
    ]


def test_an_answer_that_was_sent_completely_stops_in_the_player() -> None:
    heard = Heard(ended=True)
    turn = heard.interrupted()
    (reply,) = heard.all(3.25, SPEECH)
    assert (turn.stop_ms, reply["audio_end_ms"]) == (250.0, 1250)


def test_a_pause_before_the_interruption_counts_as_its_stop() -> None:
    heard = Heard()
    turn = heard.interrupted()
    heard.all(3.2, PlaybackPaused())
    (reply,) = heard.all(3.9, SPEECH, done("r1", "cancelled"))
    assert turn.stop_ms == pytest.approx(200.0)
    assert reply["audio_end_ms"] == pytest.approx(1200, abs=1)


def test_a_backchannel_does_not_stop_an_answer() -> None:
    heard = Heard()
    turn = heard.interrupted()
    heard.all(3.2, PlaybackPaused())
    assert turn.quiet_s is not None
    heard.all(3.7, PlaybackResumed(), sound("r1"), done("r1"))
    assert turn.quiet_s is None
    assert heard.left_s(3.7) == pytest.approx(2.8), "the rest is heard later by the length of the pause"


def test_an_answer_that_goes_on_after_speech_started_has_not_stopped() -> None:
    heard = Heard()
    turn = heard.interrupted()
    heard.all(3.2, SPEECH, sound("r1"), done("r1"))
    assert turn.stop_ms is None


def test_speech_after_the_end_of_an_answer_does_not_count_as_a_stop() -> None:
    heard = Heard(ended=True)
    turn = heard.interrupted(4.9)
    assert heard.all(5.5, SPEECH) == []
    assert turn.stop_ms is None


def test_nothing_plays_once_an_answer_was_heard() -> None:
    assert Heard(ended=True).playing(5.5) is None
    assert CallListener({}).playing(0.0) is None
