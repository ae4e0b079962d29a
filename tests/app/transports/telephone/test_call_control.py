"""When a call is over that the model ended: once nothing is answered any more, and what was said has been heard."""

from __future__ import annotations

from typing import Any

import pytest

from app.mcp import MOST_CALLS
from app.realtime.protocol import (
    CallDone,
    CallItem,
    HostedCallDone,
    MessageDone,
    OutputAudioCleared,
    OutputAudioStarted,
    OutputAudioStopped,
    OutputItemRef,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
    Status,
)
from app.realtime.protocol.server_events import AudioCommitted
from app.transports.telephone.call_control import CallControl

ANY: Any = None  # what the control does not look at
REF = OutputItemRef("resp_1", "item_1", 0, kept=True, spoken=True)
CREATED, DONE = ResponseCreated(ANY), ResponseDone(ANY)
STARTED, STOPPED, CLEARED = OutputAudioStarted("resp_1"), OutputAudioStopped("resp_1"), OutputAudioCleared("resp_1")
HANG_UP: dict[str, Any] = {"name": "hang_up", "arguments": "{}"}
TRANSFER: dict[str, Any] = {"name": "transfer", "arguments": '{"destination": "sales"}'}


def called(name: str, arguments: str, status: Status = "completed") -> CallDone:
    return CallDone(REF, CallItem(id="item_1", call_id="call_1", name=name, arguments=arguments, status=status), None)


def after(*events: ServerEvent, hang_up: bool = True) -> tuple[str, str | None]:
    """The state after the last of the events, and the step that comes after the call."""
    control, state = CallControl(hang_up, {"sales": "+49"}), "goes on"
    for event in events:
        assert state == "goes on", "it was over before"
        state = control.follow(event)
    return state, control.step


@pytest.mark.parametrize("call", [HANG_UP, TRANSFER], ids=["hang up", "transfer"])
@pytest.mark.parametrize("end", [STOPPED, CLEARED], ids=["heard", "interrupted"])
def test_it_is_over_once_the_goodbye_was_heard(call: dict[str, Any], end: ServerEvent) -> None:
    assert after(CREATED, STARTED, called(**call), DONE)[0] == "goes on"
    assert after(CREATED, STARTED, called(**call), DONE, end)[0] == "over"
    assert after(CREATED, STARTED, called(**call), end)[0] == "goes on"
    assert after(CREATED, STARTED, called(**call), end, DONE)[0] == "over"
    assert after(CREATED, called(**call), DONE) == ("over", "hang_up" if call is HANG_UP else "sales")


def test_an_answer_that_asks_for_no_end_has_none() -> None:
    assert after(CREATED, STARTED, MessageDone(REF, ANY, "Goodbye.", None), DONE, STOPPED) == ("goes on", None)
    assert after(CREATED, called("get_weather", "{}"), DONE) == ("goes on", None)
    assert after(CREATED, called(**HANG_UP), DONE, hang_up=False) == ("goes on", None)


@pytest.mark.parametrize("arguments", ['{"destination": "nobody"}', '{"destination": ["sales"]}', "{}", "[]", "{", ""])
def test_a_destination_that_is_none_is_a_mistake(arguments: str) -> None:
    assert after(CREATED, called("transfer", arguments)) == ("mistaken", None)


@pytest.mark.parametrize("call", [HANG_UP, TRANSFER, {"name": "transfer", "arguments": '{"desti'}])
def test_a_call_that_was_cut_off_asks_for_nothing(call: dict[str, Any]) -> None:
    """The caller says "wait" while the model writes it."""
    assert after(CREATED, STARTED, called(**call, status="incomplete"), DONE, CLEARED) == ("goes on", None)


def test_only_what_is_possible_is_offered() -> None:
    assert CallControl(False, {}).tools == []
    assert [one["name"] for one in CallControl(True, {"sales": "+49"}).tools] == ["hang_up", "transfer"]


RESULT = HostedCallDone(REF, ANY, None)


def test_a_model_that_only_calls_is_asked_to_speak_in_the_end() -> None:
    control = CallControl(True, {})

    def states(count: int) -> list[str]:
        found = [control.follow(event) for _ in range(count) for event in (CREATED, DONE, RESULT)]
        return [state for state in found if state != "goes on"]

    assert states(MOST_CALLS) == ["answer"] * (MOST_CALLS - 1) + ["last answer"]
    control.follow(AudioCommitted("item_2", None))
    assert states(2) == ["answer"] * 2, "the caller's next turn has calls of its own"


def test_a_result_of_the_servers_own_tool_is_answered_once() -> None:
    assert after(CREATED, DONE, RESULT)[0] == "answer"
    assert after(CREATED, RESULT)[0] == "goes on"
    assert after(CREATED, RESULT, DONE)[0] == "answer"
    assert after(CREATED, DONE, STARTED, RESULT)[0] == "answer"
    control = CallControl(True, {})
    states = [control.follow(event) for event in (CREATED, DONE, RESULT, CREATED, DONE, STOPPED)]
    assert states == ["goes on", "goes on", "answer", "goes on", "goes on", "goes on"]
    assert after(CREATED, called(**HANG_UP), RESULT, DONE)[0] == "over"
