"""A response while it is produced: converts the engine's chunks to items of one object, and to stream events.

Source: openai-python ``types/responses``: ``Response`` and ``ResponseStreamEvent``. Sans-I/O.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, assert_never

from app.ids import new_id
from app.mcp import CallResult, HostedTool, ToolServerError
from app.responses.figures import Figures
from app.responses.hosted_items import ApprovalRequest, Event, HostedCall, ResponseItem, Status, ToolListing, event
from engine import (
    Audio,
    Codes,
    Message,
    Output,
    Part,
    Text,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallPart,
    Transcript,
    Usage,
)

__all__ = ["Event", "GrowingResponse"]


@dataclass(slots=True, kw_only=True)
class _Message(ResponseItem):
    """A text message of an answer."""

    id: str = field(default_factory=lambda: new_id("msg"))
    text: str = ""

    def item(self) -> dict[str, Any]:
        content = [_text_part(self.text)] if self.text or self.status != "in_progress" else []
        return {"id": self.id, "type": "message", "role": "assistant", "status": self.status, "content": content}

    def part(self) -> Part:
        return TextPart(self.text)

    def opened(self) -> list[Event]:
        return [event("content_part.added", self.place(), part=_text_part(""))]

    def closed(self) -> list[Event]:
        return [
            event("output_text.done", self.place(), text=self.text, logprobs=[]),
            event("content_part.done", self.place(), part=_text_part(self.text)),
        ]

    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}


@dataclass(slots=True, kw_only=True)
class _Call(ResponseItem):
    """A function call."""

    id: str = field(default_factory=lambda: new_id("fc"))
    call_id: str
    name: str
    arguments: str = ""

    def item(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "function_call", "status": self.status}
        return {**head, "call_id": self.call_id, "name": self.name, "arguments": self.arguments}

    def part(self) -> Part:
        return ToolCallPart(self.name, self.arguments, self.call_id)

    def closed(self) -> list[Event]:
        done = event("function_call_arguments.done", self.place(), arguments=self.arguments)
        return [done] if self.status == "completed" else []


_AnyCall = _Call | HostedCall | ApprovalRequest
_Item = _Message | ToolListing | _AnyCall


class GrowingResponse:
    """One response while it is produced. ``head`` has the fields of its object that are known at the start.

    ``take``, ``end`` and ``fail`` return the events of each change. ``transcript`` is the user's speech, once
    transcribed.
    """

    def __init__(self, head: dict[str, Any]) -> None:
        self._object = {**head, "status": "in_progress", "output": []}
        self._items: list[_Item] = []
        self._events = 0
        self.hosted: Mapping[str, HostedTool] = {}
        """Tools that the server runs, by their names in the prompt."""
        self.transcript: str | None = None

    @property
    def begun(self) -> bool:
        """Return whether any event was produced."""
        return self._events > 0

    def begin(self) -> list[Event]:
        """Return the events for the start of the response."""
        return self._numbered([])

    def take(self, chunk: Output) -> list[Event]:
        match chunk:
            case Text(text):
                return self._numbered(self._said(text))
            case ToolCallDelta(call_id, name, arguments):
                return self._numbered(self._called(call_id, name, arguments))
            case ToolCall(call_id, name, arguments):
                opened = self._called(call_id, name, arguments) if self._call(call_id) is None else []
                return self._numbered([*opened, *self._called_whole(self._call(call_id))])
            case Transcript(text, final):
                self.transcript = text if final else self.transcript
                return []
            case Audio() | Usage() | Codes():
                return []
            case _:
                assert_never(chunk)

    def cut(self, call_id: str) -> list[Event]:
        """Mark a call as cut off. It stays incomplete, even if the response is completed."""
        return self._numbered(self._close(self._call(call_id), "incomplete"))

    def end(self, figures: Figures) -> list[Event]:
        """End the response."""
        whole = figures.finish != "length"
        status = "completed" if whole else "incomplete"
        self._drop_unasked()
        closed = [one for item in self._items for one in self._close(item, status)]
        self._object |= {
            "status": status,
            "completed_at": int(time.time()) if whole else None,
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "usage": usage(figures),
        }
        return self._numbered([*closed, {"type": f"response.{status}", "response": self.body()}])

    def fail(self, message: str, code: str = "server_error") -> list[Event]:
        """Mark the response as failed."""
        self._drop_unasked()
        for item in self._items:
            item.status = "incomplete" if item.status == "in_progress" else item.status
        self._object |= {"status": "failed", "error": {"code": code, "message": message}}
        return self._numbered([{"type": "response.failed", "response": self.body()}])

    def body(self) -> dict[str, Any]:
        """Return the current ``response`` object."""
        return {**self._object, "output": [item.item() for item in self._items]}

    def messages(self) -> tuple[Message, ...]:
        """Return the answer as messages, without calls that were cut off.

        A call that ran on this server is followed by its result.
        """
        made: list[Message] = []
        parts: list[Part] = []
        for one in self._items:
            match one:
                case _Message():
                    parts.append(one.part())
                case _Call() if one.status == "completed":
                    parts.append(one.part())
                case HostedCall() if one.result is not None:
                    call, result = one.messages()
                    made += [Message("assistant", (*parts, *call.parts)), result]
                    parts = []
                case _:
                    pass
        return (*made, Message("assistant", tuple(parts))) if parts else tuple(made)

    def listing(self, server_label: str) -> list[Event]:
        """Start listing the tools of an MCP server."""
        return self._numbered(self._open(ToolListing(index=len(self._items), server_label=server_label)))

    def listed(self, tools: tuple[HostedTool, ...], error: ToolServerError | None = None) -> list[Event]:
        """Finish the last listing with the server's tools, or with an error."""
        listing = self._items[-1]
        assert isinstance(listing, ToolListing)
        listing.tools = tuple(tool.shown for tool in tools)
        listing.error = None if error is None else str(error)
        return self._numbered(self._close(listing))

    def approved(self, tool: HostedTool, arguments: str, request_id: str) -> list[Event]:
        """Add a call that the client approved, which must run now."""
        call = HostedCall(
            index=len(self._items),
            call_id=new_id("call"),
            **_names_of(tool),
            arguments=arguments,
            whole=True,
            approval_request_id=request_id,
        )
        whole = [event("mcp_call_arguments.done", call.place(), arguments=arguments)]
        return self._numbered([*self._open(call), *whole])

    def add(self, call: HostedCall | ApprovalRequest) -> list[Event]:
        """Add a call of an MCP tool that something else runs."""
        call.index = len(self._items)
        return self._numbered(self._open(call))

    @property
    def due(self) -> list[HostedCall]:
        """Return the complete calls that have no result yet."""
        return [one for one in self._items if isinstance(one, HostedCall) and one.whole and one.result is None]

    @property
    def waits(self) -> bool:
        """Return whether the client must act: run a function, or approve a call."""
        return any(isinstance(one, _Call | ApprovalRequest) for one in self._items)

    def ran(self, call: HostedCall, result: CallResult) -> list[Event]:
        """Set the result of a call."""
        call.result = result
        return self._numbered(self._close(call, "completed" if result.error is None else "failed"))

    def _said(self, text: str) -> list[Event]:
        last = self._items[-1] if self._items else None
        opened: list[Event] = []
        if not isinstance(last, _Message) or last.status != "in_progress":
            last = _Message(index=len(self._items))
            opened = self._open(last)
        last.text += text
        return [*opened, event("output_text.delta", last.place(), delta=text, logprobs=[])]

    def _called(self, call_id: str, name: str, arguments: str) -> list[Event]:
        before: list[Event] = []
        call = self._call(call_id)
        if call is None:
            written = self._items[-1] if self._items else None
            call = self._new_call(call_id, name)
            before = [*(self._close(written) if isinstance(written, _Message) else ()), *self._open(call)]
        call.arguments += arguments
        if not arguments or isinstance(call, ApprovalRequest):
            return before
        kind = "function" if isinstance(call, _Call) else "mcp"
        return [*before, event(f"{kind}_call_arguments.delta", call.place(), delta=arguments)]

    def _new_call(self, call_id: str, name: str) -> _AnyCall:
        index, tool = len(self._items), self.hosted.get(name)
        if tool is None:
            return _Call(index=index, call_id=call_id, name=name)
        kind = ApprovalRequest if tool.needs_approval else HostedCall
        return kind(index=index, call_id=call_id, **_names_of(tool))

    def _called_whole(self, call: _AnyCall | None) -> list[Event]:
        """Finish the arguments of a call: it is ready to run here, or on the client."""
        if not isinstance(call, HostedCall):
            return self._close(call)
        call.whole = True
        return [event("mcp_call_arguments.done", call.place(), arguments=call.arguments)]

    def _call(self, call_id: str) -> _AnyCall | None:
        """Return the call of this id in the current answer. An earlier answer of the response may have used it too."""
        calls = (one for one in reversed(self._items) if isinstance(one, _AnyCall) and one.call_id == call_id)
        last = next(calls, None)
        return None if isinstance(last, HostedCall) and last.result is not None else last

    def _open(self, item: _Item) -> list[Event]:
        self._items.append(item)
        if isinstance(item, ApprovalRequest):  # reported once it is complete
            return []
        return [self._added(item), *item.opened()]

    def _close(self, item: _Item | None, status: Status = "completed") -> list[Event]:
        if item is None or item.status != "in_progress":
            return []
        item.status = status
        known = [self._added(item)] if isinstance(item, ApprovalRequest) else []
        done = {"type": "response.output_item.done", "output_index": item.index, "item": item.item()}
        return [*known, *item.closed(), done]

    def _added(self, item: _Item) -> Event:
        return {"type": "response.output_item.added", "output_index": item.index, "item": item.item()}

    def _drop_unasked(self) -> None:
        """Remove approval requests that were cut off, which the client has not seen."""
        cut = [one for one in self._items if isinstance(one, ApprovalRequest) and one.status == "in_progress"]
        self._items = [one for one in self._items if one not in cut]

    def _numbered(self, events: list[Event]) -> list[Event]:
        """Number the events. The first two report the response itself."""
        if not self._events:
            created = {**self._object, "output": []}
            first = ("response.created", "response.in_progress")
            events = [*({"type": type, "response": created} for type in first), *events]
        for one in events:
            one["sequence_number"] = self._events
            self._events += 1
        return events


class _Names(TypedDict):
    server_label: str
    name: str
    function: str


def _names_of(tool: HostedTool) -> _Names:
    return {"server_label": tool.server.entry.server_label, "name": tool.name, "function": tool.function}


def usage(figures: Figures) -> dict[str, Any]:
    return {
        "input_tokens": figures.input_tokens,
        "input_tokens_details": {"cached_tokens": figures.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": figures.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": figures.input_tokens + figures.output_tokens,
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
