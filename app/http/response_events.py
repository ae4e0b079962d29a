"""A response as it grows: the engine's chunks as the items of one object, and as the events that tell of each step.

Source: openai-python ``types/responses``: ``Response`` and ``ResponseStreamEvent``. Sans-I/O. Knows no request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from app.http.answering import Figures
from app.http.trouble import HttpRefusal
from app.ids import new_id
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

Event = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]

_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
"""The error codes that a failed response may have, by what the same error is over HTTP; others are ``server_error``."""


@dataclass(slots=True)
class _Message:
    """The text of an answer."""

    index: int
    id: str = field(default_factory=lambda: new_id("msg"))
    text: str = ""
    status: Status = "in_progress"

    def item(self) -> dict[str, Any]:
        content = [_text_part(self.text)] if self.text or self.status != "in_progress" else []
        return {"id": self.id, "type": "message", "role": "assistant", "status": self.status, "content": content}

    def part(self) -> Part:
        return TextPart(self.text)

    def opened(self) -> list[Event]:
        return [_event("content_part.added", self.place(), part=_text_part(""))]

    def closed(self) -> list[Event]:
        return [
            _event("output_text.done", self.place(), text=self.text, logprobs=[]),
            _event("content_part.done", self.place(), part=_text_part(self.text)),
        ]

    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}


@dataclass(slots=True)
class _Call:
    """A call of a function."""

    index: int
    call_id: str
    name: str
    id: str = field(default_factory=lambda: new_id("fc"))
    arguments: str = ""
    status: Status = "in_progress"

    def item(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "function_call", "status": self.status}
        return {**head, "call_id": self.call_id, "name": self.name, "arguments": self.arguments}

    def part(self) -> Part:
        return ToolCallPart(self.name, self.arguments, self.call_id)

    def opened(self) -> list[Event]:
        return []

    def closed(self) -> list[Event]:
        return [_event("function_call_arguments.done", self.place(), arguments=self.arguments)]

    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}


class GrowingResponse:
    """One answer. ``head`` has the fields of its object that are known from the beginning.

    ``take``, ``end`` and ``fail`` return the events of what has changed; ``transcript`` is what the user said, once it
    was heard.
    """

    def __init__(self, head: dict[str, Any]) -> None:
        self._object = {**head, "status": "in_progress", "output": []}
        self._items: list[_Message | _Call] = []
        self._events = 0
        self.transcript: str | None = None

    @property
    def begun(self) -> bool:
        """Whether there was an event."""
        return self._events > 0

    def take(self, chunk: Output) -> list[Event]:
        match chunk:
            case Text(text):
                return self._numbered(self._said(text))
            case ToolCallDelta(call_id, name, arguments):
                return self._numbered(self._called(call_id, name, arguments))
            case ToolCall(call_id, name, arguments):
                known = any(isinstance(item, _Call) and item.call_id == call_id for item in self._items)
                opened = [] if known else self._called(call_id, name, arguments)
                return self._numbered([*opened, *self._close(self._call(call_id))])
            case Transcript(text, final):
                self.transcript = text if final else self.transcript
                return []
            case Audio() | Usage() | Codes():
                return []
            case _:
                assert_never(chunk)

    def end(self, figures: Figures) -> list[Event]:
        """The answer is over."""
        whole = figures.finish != "length"
        status = "completed" if whole else "incomplete"
        closed = [event for item in self._items for event in self._close(item, status)]
        self._object |= {
            "status": status,
            "completed_at": int(time.time()) if whole else None,
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "usage": usage(figures),
        }
        return self._numbered([*closed, {"type": f"response.{status}", "response": self.body()}])

    def fail(self, refusal: HttpRefusal) -> list[Event]:
        """The answer has broken off."""
        for item in self._items:
            item.status = "incomplete" if item.status == "in_progress" else item.status
        error = {"code": _CODES.get(refusal.status_code, "server_error"), "message": refusal.detail}
        self._object |= {"status": "failed", "error": error}
        return self._numbered([{"type": "response.failed", "response": self.body()}])

    def body(self) -> dict[str, Any]:
        """The ``response`` object as it stands."""
        return {**self._object, "output": [item.item() for item in self._items]}

    def message(self) -> Message:
        """Return the answer as a turn of the conversation, without a call that was cut off."""
        whole = (one for one in self._items if isinstance(one, _Message) or one.status == "completed")
        return Message("assistant", tuple(item.part() for item in whole))

    def _said(self, text: str) -> list[Event]:
        last = self._items[-1] if self._items else None
        opened: list[Event] = []
        if not isinstance(last, _Message) or last.status != "in_progress":
            last = _Message(len(self._items))
            opened = self._open(last)
        last.text += text
        return [*opened, _event("output_text.delta", last.place(), delta=text, logprobs=[])]

    def _called(self, call_id: str, name: str, arguments: str) -> list[Event]:
        before: list[Event] = []
        call = self._call(call_id)
        if call is None:
            written = self._items[-1] if self._items else None
            call = _Call(len(self._items), call_id, name)
            before = [*(self._close(written) if isinstance(written, _Message) else ()), *self._open(call)]
        call.arguments += arguments
        delta = [_event("function_call_arguments.delta", call.place(), delta=arguments)] if arguments else []
        return [*before, *delta]

    def _call(self, call_id: str) -> _Call | None:
        return next((one for one in self._items if isinstance(one, _Call) and one.call_id == call_id), None)

    def _open(self, item: _Message | _Call) -> list[Event]:
        self._items.append(item)
        added = {"type": "response.output_item.added", "output_index": item.index, "item": item.item()}
        return [added, *item.opened()]

    def _close(self, item: _Message | _Call | None, status: Status = "completed") -> list[Event]:
        if item is None or item.status != "in_progress":
            return []
        item.status = status
        done = {"type": "response.output_item.done", "output_index": item.index, "item": item.item()}
        return [*item.closed(), done]

    def _numbered(self, events: list[Event]) -> list[Event]:
        """The events with their numbers; the first ones tell of the response itself."""
        if events and not self._events:
            created = {**self._object, "output": []}
            first = ("response.created", "response.in_progress")
            events = [*({"type": type, "response": created} for type in first), *events]
        for event in events:
            event["sequence_number"] = self._events
            self._events += 1
        return events


def usage(figures: Figures) -> dict[str, Any]:
    return {
        "input_tokens": figures.input_tokens,
        "input_tokens_details": {"cached_tokens": figures.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": figures.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": figures.input_tokens + figures.output_tokens,
    }


def _event(type: str, place: dict[str, Any], **fields: Any) -> Event:
    return {"type": f"response.{type}", **place, **fields}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
