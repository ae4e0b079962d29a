"""When a call is over that the model ended: once nothing is answered any more, and what was said has been heard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from app.mcp import MOST_CALLS
from app.realtime.protocol import CallItem, HostedCallItem, ServerEvent, SessionOptions, Status, session_options
from app.realtime.protocol.server_events import (
    AudioClearedEvent,
    AudioCommittedEvent,
    CallDoneEvent,
    HostedCallDoneEvent,
    MessageDoneEvent,
    OutputAudioClearedEvent,
    OutputAudioStartedEvent,
    OutputAudioStoppedEvent,
    OutputItemRef,
    ResponseCreatedEvent,
    ResponseDoneEvent,
    ResponseView,
    SessionUpdatedEvent,
    SessionView,
    SpeechStartedEvent,
    SpeechStoppedEvent,
)
from app.transports.telephone.call_control import CallControl

ANY: Any = None  # what the control does not look at
REF = OutputItemRef("resp_1", "item_1", 0, kept=True, spoken=True)


def response(id: str, kept: bool = True, speaks: bool = True) -> tuple[ResponseCreatedEvent, ResponseDoneEvent]:
    """A response's first event and its last; ``kept`` by the conversation."""
    options: Any = SimpleNamespace(speaks=speaks)
    view = ResponseView(id, "conv_1" if kept else None, options)
    return ResponseCreatedEvent(view), ResponseDoneEvent(view)


CREATED, DONE = response("resp_1")
STARTED, STOPPED, CLEARED = (
    OutputAudioStartedEvent("resp_1"),
    OutputAudioStoppedEvent("resp_1"),
    OutputAudioClearedEvent("resp_1"),
)
HANG_UP: dict[str, Any] = {"name": "hang_up", "arguments": "{}"}
TRANSFER: dict[str, Any] = {"name": "transfer", "arguments": '{"destination": "sales"}'}


def called(name: str, arguments: str, status: Status = "completed") -> CallDoneEvent:
    return CallDoneEvent(
        REF, CallItem(id="item_1", call_id="call_1", name=name, arguments=arguments, status=status), None
    )


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
    assert after(CREATED, STARTED, MessageDoneEvent(REF, ANY, "Goodbye.", None), DONE, STOPPED) == ("goes on", None)
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


def result(status: Status = "completed") -> HostedCallDoneEvent:
    item = HostedCallItem(
        id="mcp_1", server_label="library", name="shelf", function="shelf", arguments="{}", status=status
    )
    return HostedCallDoneEvent(REF, item, None)


RESULT = result()


def states(*events: ServerEvent) -> list[str]:
    """The states after each of the events in which the call does not simply go on."""
    control = CallControl(True, {"sales": "+49"})
    return [state for event in events if (state := control.follow(event)) != "goes on"]


def test_a_mistake_is_answered_once_what_was_said_before_it_is_over() -> None:
    """Until then a second answer would be refused, and nobody would ask again."""
    mistake = called("transfer", '{"destination": "nobody"}')
    assert states(CREATED, STARTED, mistake) == ["mistaken"]
    assert states(CREATED, STARTED, mistake, DONE) == ["mistaken", "answer"]
    assert states(CREATED, STARTED, mistake, DONE, CREATED, STOPPED, DONE) == ["mistaken", "answer"]


def test_an_answer_s_end_is_not_that_of_another_beside_it() -> None:
    """A backend asks for a text beside the conversation's answer; another voice beside it would be refused."""
    begun, over = response("resp_2", kept=False, speaks=False)
    assert states(CREATED, begun, over, RESULT) == []
    assert states(CREATED, begun, over, RESULT, DONE) == ["answer"]
    assert states(CREATED, begun, RESULT, DONE) == ["answer"], "which need not wait for a text beside it"
    begun, over = response("resp_2", kept=False)
    assert states(begun, RESULT) == []
    assert states(begun, RESULT, over) == ["answer"]


def test_a_goodbye_is_heard_to_its_end_although_the_answer_before_it_ends_meanwhile() -> None:
    begun, over = response("resp_2")
    goodbye = [CREATED, STARTED, DONE, begun, OutputAudioStartedEvent("resp_2"), STOPPED, called(**HANG_UP), over]
    assert states(*goodbye) == []
    assert states(*goodbye, OutputAudioStoppedEvent("resp_2")) == ["over"]


def updated(turn_detection: Any) -> SessionUpdatedEvent:
    options = session_options(SessionOptions(), {"audio": {"input": {"turn_detection": turn_detection}}})[0]
    return SessionUpdatedEvent(SessionView("sess_1", 0, options, {}))


SPEECH, SPOKEN, COMMITTED = (
    SpeechStartedEvent("item_2", 0),
    SpeechStoppedEvent("item_2", 1),
    AudioCommittedEvent("item_2", None),
)


def test_whoever_speaks_is_not_talked_over() -> None:
    """A result that comes meanwhile is in the prompt of what answers their turn."""
    begun, over = response("resp_2")
    assert states(CREATED, DONE, SPEECH, RESULT) == []
    assert states(CREATED, DONE, SPEECH, RESULT, SPOKEN, COMMITTED, begun, over) == []
    assert states(CREATED, DONE, SPEECH, SPOKEN, COMMITTED, begun, RESULT, over) == ["answer"]


def test_a_call_of_the_servers_own_tool_that_was_cut_off_has_no_result() -> None:
    """The caller says "wait" while the model writes it, or a backend has the answer stopped."""
    cut_off = result("incomplete")
    assert states(CREATED, SPEECH, cut_off, DONE) == []
    assert states(CREATED, cut_off, DONE) == []


@pytest.mark.parametrize("dropped", [AudioClearedEvent(), updated(None)])
def test_a_turn_that_is_dropped_leaves_the_result_to_be_answered(dropped: ServerEvent) -> None:
    assert states(CREATED, DONE, SPEECH, RESULT, dropped) == ["answer"]
    assert states(CREATED, DONE, SPEECH, RESULT, updated({"type": "server_vad"})) == []
    full = [CREATED, DONE, SPEECH, RESULT, SPOKEN]  # the conversation has no room for what they said
    assert states(*full, *response("resp_2")) == ["answer"]


def test_a_model_that_only_calls_is_asked_to_speak_in_the_end() -> None:
    control = CallControl(True, {})

    def asked(count: int) -> list[str]:
        found = [control.follow(event) for _ in range(count) for event in (CREATED, DONE, RESULT)]
        return [state for state in found if state != "goes on"]

    assert asked(MOST_CALLS) == ["answer"] * (MOST_CALLS - 1) + ["last answer"]
    control.follow(AudioCommittedEvent("item_2", None))
    assert asked(2) == ["answer"] * 2, "the caller's next turn has calls of its own"


def test_a_result_of_the_servers_own_tool_is_answered_once() -> None:
    assert after(CREATED, DONE, RESULT)[0] == "answer"
    assert after(CREATED, RESULT)[0] == "goes on"
    assert after(CREATED, RESULT, DONE)[0] == "answer"
    assert after(CREATED, DONE, STARTED, RESULT)[0] == "answer"
    assert states(CREATED, DONE, RESULT, CREATED, DONE, STOPPED) == ["answer"]
    assert after(CREATED, called(**HANG_UP), RESULT, DONE)[0] == "over"
