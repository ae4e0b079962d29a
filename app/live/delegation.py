"""Delegated work as a Live client sees it: Responses events, each in an envelope with the delegation's id.

Source: openai-python ``types/live/response_event``. One LLM is both the backend and the voice, so a delegation appears
when the LLM calls a function, or when the client requests a response. Sans-I/O.
"""

from __future__ import annotations

import time
from typing import Any

from app.mcp import CallResult
from app.realtime.protocol.server_events import ResponseUsage, ResponseView
from app.responses.events import Event, GrowingResponse
from app.responses.figures import Figures
from app.responses.hosted_items import ApprovalRequest, HostedCall
from engine import Text, ToolCall, ToolCallDelta

_EMPTY = {"output": [], "tools": [], "instructions": None}
"""Fields that are empty in snapshots of a response: the events between the snapshots carry these contents."""


class DelegatedResponse:
    """One response of the backend. ``delegation_id`` is None if the client requested it without a delegation."""

    def __init__(self, view: ResponseView, model: str, delegation_id: str | None) -> None:
        self.delegation_id = delegation_id
        self.called = False
        """Whether the response calls a function, so that a continuation follows."""
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
        self._running: dict[str, HostedCall] = {}
        self._ended: ResponseView | None = None  # until the running calls have returned

    def begin(self) -> list[Event]:
        return self._wrapped(self._growing.begin())

    def take(self, chunk: Text | ToolCallDelta | ToolCall) -> list[Event]:
        """Report the next words, the next piece of a call, or a complete call."""
        self.called = self.called or isinstance(chunk, ToolCall)
        return self._wrapped(self._growing.take(chunk))

    def call_hosted(self, call: HostedCall | ApprovalRequest) -> list[Event]:
        """Begin a call of an MCP tool, or a request for its approval."""
        self.called = True
        if isinstance(call, HostedCall):
            self._running[call.call_id] = call
        return self._wrapped(self._growing.add(call))

    def piece(self, call_id: str, text: str) -> list[Event]:
        """Report the next characters of such a call's arguments."""
        return self._wrapped(self._growing.take(ToolCallDelta(call_id, "", text)))

    def arguments(self, call_id: str, arguments: str) -> list[Event]:
        """Report the complete arguments of such a call."""
        return self._wrapped(self._growing.take(ToolCall(call_id, "", arguments)))

    def returned(self, call_id: str, result: CallResult) -> list[Event]:
        """Report the result of such a call. The response ends if it has waited for this one."""
        events = self._wrapped(self._growing.ran(self._running.pop(call_id), result))
        if self._ended is not None and not self._running:
            events += self.end(self._ended)
        return events

    def cut(self, call_id: str) -> list[Event]:
        """Report that a function call was cut off, so that the client must not run it."""
        return self._wrapped(self._growing.cut(call_id))

    def end(self, view: ResponseView) -> list[Event]:
        """Report the end of the response, or keep it until the MCP calls have returned.

        A response that the user interrupted counts as complete: only its audio was cut.
        """
        if self._running:
            self._ended = view
            return []
        if view.outcome == "failed":
            _, message = view.error or ("", "The response failed.")
            return self._wrapped(self._growing.fail(message))
        return self._wrapped(self._growing.end(_figures(view)))

    def _wrapped(self, events: list[Event]) -> list[Event]:
        return [wrapped(self.delegation_id, _lean(event)) for event in events]


def wrapped(delegation_id: str | None, event: Event) -> Event:
    """Return the envelope of an event of the Responses protocol."""
    return {"type": "response.event", "delegation_id": delegation_id, "event": event}


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
