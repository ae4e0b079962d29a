"""The trace of one session, built from the events that it sends to its client.

A stage may begin before its response: the server works on an answer while the user still speaks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import orjson

from app.realtime.protocol import CallItem, CallOutputItem, HostedCallItem, MessageItem, MessageText, ServerEvent
from app.realtime.protocol.server_events import (
    CallDoneEvent,
    ErrorEvent,
    HostedCallApprovedEvent,
    HostedCallDoneEvent,
    HostedCallWrittenEvent,
    ItemAddedEvent,
    ResponseCreatedEvent,
    ResponseDoneEvent,
    ResponseUsage,
    ResponseView,
    TranscriptionCompletedEvent,
)
from app.refusal import Refusal, ServerFault
from app.tracing.stage_spans import PROVIDER, add_stages, ledger_attributes, token_attributes

if TYPE_CHECKING:
    from app.tracing.span import Attributes, Span
    from app.tracing.tracing import Tracing

MOST_OPEN = 64
"""Tool calls whose result is awaited. A client may never send one; the oldest span then ends without it."""

MOST_HEARD_CHARS = 65_536
"""Characters of the user's words that wait for a response: an hour of speech. A session that only transcribes never
has one. The oldest words are dropped first.
"""

FINISH = {"completed": "stop", "incomplete": "length"}


class SessionTrace:
    """The spans of one session. ``model`` is the name of the loaded model. Does nothing if tracing is off."""

    def __init__(self, tracing: Tracing, model: str) -> None:
        self._tracing = tracing
        self._model = model
        self._span: Span | None = None
        self._about: Attributes = {}
        self._responses: dict[str, Span] = {}
        self._tools: dict[str, Span] = {}  # by the id of the call
        self._heard = deque[str]()  # the user's words since the last response, if contents are traced
        self._heard_chars = 0

    def tapped(self, emit: Callable[[ServerEvent], None]) -> Callable[[ServerEvent], None]:
        """Return ``emit``, and trace the events that pass through it."""
        if not self._tracing.enabled:
            return emit

        def traced(event: ServerEvent) -> None:
            emit(event)
            if self._span is not None:
                self._take(event, self._span)

        return traced

    def begin(self, session_id: str, kind: str, asked_model: str) -> None:
        """Start the session's span. ``kind`` is the log's name of such a session, like ``call``."""
        self._about = {"gen_ai.conversation.id": session_id, "gen_ai.request.model": asked_model or self._model}
        about = {**PROVIDER, **self._about, "gen_ai.response.model": self._model, "parley.session.kind": kind}
        self._span = self._tracing.root(kind, about)

    def end(self, code: int, reason: str) -> None:
        """End all spans. ``code`` and ``reason`` are those of the session's close."""
        if self._span is None:
            return
        for span in (*self._tools.values(), *self._responses.values()):
            span.end()
        self._tools.clear()
        self._responses.clear()
        self._span.set({"parley.close.code": code, "parley.close.reason": reason})
        self._span.end()
        self._span = None

    def _take(self, event: ServerEvent, session: Span) -> None:
        match event:
            case ResponseCreatedEvent(view):
                self._responses[view.id] = session.child("invoke_agent", self._of_response(view))
            case ResponseDoneEvent(view) if view.id in self._responses:
                self._done(view, self._responses.pop(view.id))
            case CallDoneEvent(ref, item) if item.status == "completed":
                self._call(item, item.call_id, self._responses.get(ref.response_id, session))
            case HostedCallWrittenEvent(ref, item) if item.status == "completed":
                self._call(item, item.id, self._responses.get(ref.response_id, session))
            case HostedCallApprovedEvent(item):
                self._call(item, item.id, session)
            case HostedCallDoneEvent(_, item):
                self._returned(item.id, item.output or "", None if item.error is None else item.error.kind)
            case ItemAddedEvent(CallOutputItem() as item):
                self._returned(item.call_id, item.output, None)
            case ItemAddedEvent(MessageItem(role="user", content=content)) if self._tracing.contents:
                self._hear(part.text for part in content if isinstance(part, MessageText))
            case TranscriptionCompletedEvent(_, transcript) if self._tracing.contents:
                self._hear([transcript])
            case ErrorEvent(refusal):
                _add_error(session, refusal)
            case _:
                pass

    def _of_response(self, view: ResponseView) -> Attributes:
        return {
            **PROVIDER,
            **self._about,
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.response.id": view.id,
            "gen_ai.output.type": "speech" if view.options.speaks else "text",
        }

    def _done(self, view: ResponseView, span: Span) -> None:
        span.set({"parley.response.status": view.outcome, **ledger_attributes(view.ttfa_ms, view.ledger)})
        if view.reason is not None:
            span.set({"parley.response.reason": view.reason})
        if view.outcome in FINISH:
            span.set({"gen_ai.response.finish_reasons": (FINISH[view.outcome],)})
        if view.error is not None:
            span.fail(view.error[0])
        if self._tracing.contents:
            span.set(self._words(view))
            self._heard.clear()
            self._heard_chars = 0
        add_stages(span, view.stages, self._about, _tokens(view.usage or ResponseUsage()), time.monotonic())
        span.end()

    def _hear(self, texts: Iterable[str]) -> None:
        for text in filter(None, texts):
            self._heard.append(text)
            self._heard_chars += len(text)
        while self._heard_chars > MOST_HEARD_CHARS and len(self._heard) > 1:
            self._heard_chars -= len(self._heard.popleft())

    def _words(self, view: ResponseView) -> Attributes:
        answered = [_text_of(item) for item in view.output if isinstance(item, MessageItem)]
        return {
            "gen_ai.input.messages": _messages("user", self._heard),
            "gen_ai.output.messages": _messages("assistant", answered),
        }

    def _call(self, item: CallItem | HostedCallItem, id: str, parent: Span) -> None:
        """Start the span of a call. A function is run by the client, other tools by the server."""
        about = {**self._about, **tool_attributes(item.name, id, isinstance(item, HostedCallItem))}
        if isinstance(item, HostedCallItem):
            about["parley.tool.server"] = item.server_label
        if self._tracing.contents:
            about["gen_ai.tool.call.arguments"] = item.arguments
        self._tools[id] = parent.child(f"execute_tool {item.name}", about)
        if len(self._tools) > MOST_OPEN:
            self._tools.pop(next(iter(self._tools))).end()

    def _returned(self, id: str, output: str, error: str | None) -> None:
        span = self._tools.pop(id, None)
        if span is None:
            return
        if error is not None:
            span.fail(error)
        if self._tracing.contents:
            span.set({"gen_ai.tool.call.result": output})
        span.end()


def tool_attributes(name: str, call_id: str, hosted: bool) -> dict[str, str]:
    """Return the attributes of a tool call. ``hosted`` tools are run by the server."""
    kind = "extension" if hosted else "function"
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.type": kind}
    return {**about, "gen_ai.tool.call.id": call_id}


def _add_error(session: Span, refusal: Refusal) -> None:
    session.event("error", {"error.type": refusal.code})
    if isinstance(refusal, ServerFault):
        session.fail(refusal.code)


def _tokens(used: ResponseUsage) -> dict[str, int]:
    return token_attributes(
        used.input_tokens, used.text_tokens, used.audio_tokens, used.cached_tokens, used.audio_input_tokens
    )


def _text_of(item: MessageItem) -> str:
    return " ".join(text for part in item.content if (text := getattr(part, "text", "")))


def _messages(role: str, texts: Iterable[str]) -> str:
    parts = [{"type": "text", "content": text} for text in texts]
    return orjson.dumps([{"role": role, "parts": parts}] if parts else []).decode()
