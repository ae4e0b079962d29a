"""Delegated work as a Live client sees it: the events of Responses, each in an envelope that names its delegation.

Source: openai-python ``types/live/response_event``. Our thinker is the backend and the voice's words at once, so a
delegation is told of where the thinker calls a function, and where the client asks for a response itself. Sans-I/O.
"""

from __future__ import annotations

import time
from typing import Any

from app.realtime.protocol.server_events import ResponseUsage, ResponseView
from app.responses.events import Event, GrowingResponse
from app.responses.figures import Figures
from engine import Text, ToolCall, ToolCallDelta

_EMPTY = {"output": [], "tools": [], "instructions": None}
"""Snapshots hold no contents: the events between them do."""


class DelegatedResponse:
    """One response of the backend. ``delegation_id`` is None where the client began it without any delegation."""

    def __init__(self, view: ResponseView, model: str, delegation_id: str | None) -> None:
        self.delegation_id = delegation_id
        self.called = False
        """Whether it calls a function, so that a continuation follows."""
        head = {
            "id": view.id,
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "parallel_tool_calls": True,
            "tool_choice": view.options.tool_choice,
            **_EMPTY,
        }
        self._growing = GrowingResponse(head)

    def begin(self) -> list[Event]:
        return self._wrapped(self._growing.begin())

    def take(self, chunk: Text | ToolCallDelta | ToolCall) -> list[Event]:
        """Tell of the next words, of the next piece of a call, or of a whole call."""
        self.called = self.called or isinstance(chunk, ToolCall)
        return self._wrapped(self._growing.take(chunk))

    def cut(self, call_id: str) -> list[Event]:
        """A call was cut off: nobody is to run it."""
        return self._wrapped(self._growing.cut(call_id))

    def end(self, view: ResponseView) -> list[Event]:
        """The response is over. One that the user interrupted is whole: the backend goes on when its voice is cut."""
        if view.outcome == "failed":
            _, message = view.error or ("", "The answer failed.")
            return self._wrapped(self._growing.fail(message))
        return self._wrapped(self._growing.end(_figures(view)))

    def _wrapped(self, events: list[Event]) -> list[Event]:
        return [
            {"type": "response.event", "delegation_id": self.delegation_id, "event": _lean(event)} for event in events
        ]


def _lean(event: Event) -> Event:
    if "response" not in event:
        return event
    response: dict[str, Any] = {**event["response"], **_EMPTY}
    return {**event, "response": response}


def _figures(view: ResponseView) -> Figures:
    used, finish = view.usage or ResponseUsage(), "length" if view.outcome == "incomplete" else "stop"
    return Figures(
        finish=finish, input_tokens=used.input_tokens, cached_tokens=used.cached_tokens, text_tokens=used.text_tokens
    )
