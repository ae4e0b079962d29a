"""Functions with which the model ends or transfers its call. The server runs them.

The call ends once the goodbye was heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from app.mcp import MOST_CALLS
from app.realtime.protocol import CallItem, ServerEvent
from app.realtime.protocol.server_events import (
    AudioClearedEvent,
    AudioCommittedEvent,
    CallDoneEvent,
    HostedCallDoneEvent,
    OutputAudioClearedEvent,
    OutputAudioStartedEvent,
    OutputAudioStoppedEvent,
    ResponseCreatedEvent,
    ResponseDoneEvent,
    SessionUpdatedEvent,
    SpeechStartedEvent,
    SpeechStoppedEvent,
)

HANG_UP, TRANSFER = "hang_up", "transfer"

State = Literal["goes on", "mistaken", "answer", "last answer", "over"]


class CallControl:
    """Follows one call. ``step`` is the next step after it: HANG_UP, or the name of a destination.

    ``destinations`` maps names to numbers.
    """

    def __init__(self, hang_up: bool, destinations: Mapping[str, str]) -> None:
        self._hang_up = hang_up
        self._destinations = destinations
        self.step: str | None = None
        self.mistaken_call = ""
        """The id of the last transfer call without a valid destination."""
        self._answering = set[str]()  # active responses, during which no spoken answer may start
        self._sounding = set[str]()  # audible responses; one may start before another one's end was heard
        self._user_speaks = self._has_result = False
        self._answered = 0  # tool results since the caller's last turn

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Return the functions in the format of a session's tools."""
        hang_up = _function(HANG_UP, "End the telephone call. Say goodbye before.", {})
        names = {"type": "string", "enum": list(self._destinations)}
        transfer = _function(TRANSFER, "Hand the caller on to somebody else.", {"destination": names})
        return [*([hang_up] if self._hang_up else []), *([transfer] if self._destinations else [])]

    def follow(self, event: ServerEvent) -> State:
        """Follow one event. Returns whether the call goes on or is over, or what the model needs.

        "mistaken": the model named no valid destination. "answer": a tool that the server ran has a result to answer;
        after "last answer" the model may call no further tool. An invalid destination is a result too, answered after
        the response that named it.
        """
        match event:
            case ResponseCreatedEvent(response) if response.conversation_id is not None or response.options.speaks:
                self._answering.add(response.id)
            case ResponseDoneEvent(response):
                self._answering.discard(response.id)
                return self._state()
            case OutputAudioStartedEvent(id):
                self._sounding.add(id)
            case OutputAudioStoppedEvent(id) | OutputAudioClearedEvent(id):
                self._sounding.discard(id)
                return self._state()
            case CallDoneEvent(_, item):
                return self._called(item)
            case HostedCallDoneEvent(_, item) if item.status == "completed":  # a call that was cut off requests nothing
                self._has_result = True
                return self._state()
            case _:
                return self._follow_turn(event)
        return "goes on"

    def _follow_turn(self, event: ServerEvent) -> State:
        """Note whether the caller speaks: tool results wait until then, and are part of the answer to the turn."""
        match event:
            case SpeechStartedEvent():
                self._user_speaks = True
            case SpeechStoppedEvent():
                self._user_speaks = False  # the turn is committed next, unless there is no room
            case AudioCommittedEvent():
                self._user_speaks = self._has_result = False
                self._answered = 0
            case AudioClearedEvent():
                return self._turn_dropped()
            case SessionUpdatedEvent(session) if session.options.audio.input.turn_detection is None:
                return self._turn_dropped()
            case _:
                pass
        return "goes on"

    def _turn_dropped(self) -> State:
        """Handle a turn that will not be committed: the client cleared it, or disabled turn detection."""
        self._user_speaks = False
        return self._state()

    def _called(self, item: CallItem) -> State:
        if item.status != "completed":
            return "goes on"  # cut off by the caller or the model: it requests nothing
        if item.name == HANG_UP and self._hang_up:
            self.step = HANG_UP
        elif item.name == TRANSFER and self._destinations:
            self.step = self._destination(item.arguments)
            if self.step is None:
                self.mistaken_call = item.call_id
                self._has_result = True
                return "mistaken"
        return "goes on"

    def _destination(self, arguments: str) -> str | None:
        try:
            name = msgspec.json.decode(arguments, type=dict[str, Any]).get("destination")
        except msgspec.DecodeError:
            return None
        return name if isinstance(name, str) and name in self._destinations else None

    def _state(self) -> State:
        if self.step is not None:
            return "goes on" if self._answering or self._sounding else "over"
        if self._has_result and not self._answering and not self._user_speaks:
            self._has_result = False
            self._answered += 1
            return "answer" if self._answered < MOST_CALLS else "last answer"
        return "goes on"


def _function(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}
