"""What a Live client is told of answers that were cut off, and of settings that were refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.live import LiveDialect, OutputTimeline, started
from app.realtime.output.response_emitter import ResponseEmitter
from app.realtime.protocol.options import SessionOptions, response_options
from app.realtime.protocol.server_events import (
    ErrorEvent,
    OutputAudioPausedEvent,
    OutputAudioResumedEvent,
    SessionUpdatedEvent,
)
from app.refusal import Refusal
from tests.app.live.caller import RESPONSES
from tests.app.realtime.output.test_response_emitter import MODEL


@pytest.fixture
def dialect() -> LiveDialect:
    return LiveDialect(started({"model": "m", "delegation": RESPONSES}), OutputTimeline(lambda: 0.0))


def answering(dialect: LiveDialect, asked: bool = False) -> tuple[ResponseEmitter, list[Any]]:
    """An answer under way, and the events that its client is told."""
    told: list[Any] = []
    options = response_options(SessionOptions(), {"output_modalities": ["audio"]})[0]
    response = ResponseEmitter(options, None, MODEL, lambda event: told.extend(map(json.loads, dialect.encode(event))))
    response.open(asked)
    return response, told


def inner(told: list[Any]) -> list[Any]:
    return [event["event"] for event in told if event["type"] == "response.event"]


@pytest.mark.parametrize("event", [OutputAudioPausedEvent(), OutputAudioResumedEvent()])
def test_a_live_client_hears_a_pause_and_is_not_told(dialect: LiveDialect, event: Any) -> None:
    """Its server plays."""
    assert dialect.encode(event) == []


@pytest.mark.parametrize("asked", [True, False])
def test_nobody_is_to_run_a_call_that_the_user_cut_off(dialect: LiveDialect, asked: bool) -> None:
    response, told = answering(dialect, asked)
    response.call_piece("get_weather", "call_1", '{"city": "Par')
    response.close("cancelled", "turn_detected")
    done = [event["item"] for event in inner(told) if event["type"] == "response.output_item.done"]
    assert [(item["status"], item["arguments"]) for item in done] == [("incomplete", '{"city": "Par')]
    assert "response.function_call_arguments.done" not in [event["type"] for event in inner(told)]
    assert inner(told)[-1]["type"] == "response.completed"
    following, told = answering(dialect, asked=True)
    following.close("completed")
    assert {event["delegation_id"] for event in told if event["type"] == "response.event"} == {None}


def test_a_call_that_is_whole_stays_so_where_the_voice_is_cut(dialect: LiveDialect) -> None:
    response, told = answering(dialect)
    response.call("get_weather", "{}", "call_1")
    response.close("cancelled", "turn_detected")
    done = [event["item"]["status"] for event in inner(told) if event["type"] == "response.output_item.done"]
    assert done == ["completed"]
    assert "response.function_call_arguments.done" in [event["type"] for event in inner(told)]


def test_only_what_the_client_asked_for_is_delegated_work(dialect: LiveDialect) -> None:
    """A request that came to nothing does not name the next turn's answer."""
    dialect.decode(json.dumps({"type": "response.create", "event_id": "a"}))
    dialect.encode(ErrorEvent(Refusal("context_full", "There is no room."), "a"))
    _, told = answering(dialect, asked=False)
    assert inner(told) == []
    _, told = answering(dialect, asked=True)
    assert [event["type"] for event in inner(told)] == ["response.created", "response.in_progress"]


def update(tools: list[Any], event_id: str) -> str:
    session = {"delegation": {"type": "responses", "responses": {"tools": tools}}}
    return json.dumps({"type": "session.update", "event_id": event_id, "session": session})


def test_settings_that_were_refused_are_forgotten(dialect: LiveDialect) -> None:
    before = dialect.config
    bad = dialect.decode(update([{"type": "function"}], "bad"))
    (error,) = map(json.loads, dialect.encode(ErrorEvent(Refusal("invalid_value", "It has no name."), bad.event_id)))
    assert error["error"]["client_event_id"] == "bad"
    assert dialect.config == before
    instructions = {"delegation": {"type": "responses", "responses": {"instructions": "Be brief."}}}
    good: Any = dialect.decode(json.dumps({"type": "session.update", "session": instructions})).event
    assert [tool["name"] for tool in good.session["tools"]] == ["get_weather"], "and not the bad ones"


def test_settings_that_follow_each_other_hold_one_after_the_other(dialect: LiveDialect) -> None:
    view: Any = type("View", (), {"id": "sess", "expires_at_s": 0})
    for name in ("one", "two"):
        dialect.decode(update([{"type": "function", "name": name}], name))
    shown = [json.loads(dialect.encode(SessionUpdatedEvent(view))[0])["session"]["delegation"] for _ in range(2)]
    assert [one["responses"]["tools"][0]["name"] for one in shown] == ["one", "two"]
