"""The model's control of its call: it may end the call, or hand it on, by functions that the server runs itself.

A call whose end was asked for ends once the goodbye was heard. Knows no dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from app.mcp import MOST_CALLS
from app.realtime.protocol import (
    CallDone,
    CallItem,
    HostedCallDone,
    OutputAudioCleared,
    OutputAudioStarted,
    OutputAudioStopped,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
)
from app.realtime.protocol.server_events import AudioCommitted

HANG_UP, TRANSFER = "hang_up", "transfer"

State = Literal["goes on", "mistaken", "answer", "last answer", "over"]


class CallControl:
    """``step`` is what comes after the call: HANG_UP, or the name of a destination. ``destinations`` are names and
    numbers."""

    def __init__(self, hang_up: bool, destinations: Mapping[str, str]) -> None:
        self._hang_up, self._destinations = hang_up, destinations
        self.step: str | None = None
        self.mistaken_call = ""
        """The id of the last function call that named no destination."""
        self._answering = self._sounding = self._has_result = False
        self._answered = 0  # results of tools since the caller's last turn

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The functions, as a session offers them."""
        hang_up = _function(HANG_UP, "End the telephone call. Say goodbye before.", {})
        names = {"type": "string", "enum": list(self._destinations)}
        transfer = _function(TRANSFER, "Hand the caller on to somebody else.", {"destination": names})
        return [*([hang_up] if self._hang_up else []), *([transfer] if self._destinations else [])]

    def follow(self, event: ServerEvent) -> State:
        """Take one event that is told; whether the call goes on, is over, the model named no destination, or a tool
        that the server ran has a result that waits for an answer: the last one asks for no further tool."""
        match event:
            case ResponseCreated():
                self._answering = True
            case HostedCallDone():
                self._has_result = True
                return self._state()
            case AudioCommitted():
                self._answered = 0
            case OutputAudioStarted():
                self._sounding = True
            case CallDone(_, item):
                return self._called(item)
            case ResponseDone():
                self._answering = False
                return self._state()
            case OutputAudioStopped() | OutputAudioCleared():
                self._sounding = False
                return self._state()
            case _:
                pass
        return "goes on"

    def _called(self, item: CallItem) -> State:
        if item.status != "completed":
            return "goes on"  # the caller interrupted, or the model broke off: it asked for nothing
        if item.name == HANG_UP and self._hang_up:
            self.step = HANG_UP
        elif item.name == TRANSFER and self._destinations:
            self.step = self._destination(item.arguments)
            if self.step is None:
                self.mistaken_call = item.call_id
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
        if self._has_result and not self._answering:
            self._has_result = False
            self._answered += 1
            return "answer" if self._answered < MOST_CALLS else "last answer"
        return "goes on"


def _function(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "name": name, "description": description, "parameters": parameters}
