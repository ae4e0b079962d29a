"""The trace of one answer over HTTP, and of the tools that the server runs for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from app.responses.figures import Figures
from app.tracing.session_trace import tool_attributes
from app.tracing.stage_spans import PROVIDER, add_stages, ledger_attributes, token_attributes
from app.tracing.tracing import Tracing

if TYPE_CHECKING:
    from app.tracing.span import Span

_CURRENT: ContextVar[Span | None] = ContextVar("answer_span", default=None)


@contextmanager
def answer_trace(
    tracing: Tracing, id: str, model: str, figures: Figures, left: tuple[type[BaseException], ...]
) -> Generator[None]:
    """Trace an answer while the block lasts. ``figures`` are complete at its end.

    Exceptions of ``left`` mean that the client has left, which is no error.
    """
    about = {"gen_ai.request.model": model, "gen_ai.response.id": id}
    span = tracing.root("invoke_agent", {**PROVIDER, **about, "gen_ai.operation.name": "invoke_agent"})
    if span is None:
        yield
        return
    token = _CURRENT.set(span)
    try:
        yield
    except left:
        span.set({"parley.response.status": "cancelled"})
        raise
    except Exception as error:
        span.fail(getattr(error, "code", type(error).__name__))
        raise
    finally:
        _CURRENT.reset(token)
        _end(span, model, figures)


@contextmanager
def traced_tool(name: str, call_id: str, server_label: str) -> Generator[Callable[[str], None]]:
    """Trace a tool call of the current answer while the block lasts. The yielded function marks it as failed."""
    parent = _CURRENT.get()
    if parent is None:
        yield lambda error: None
        return
    about = {**tool_attributes(name, call_id, hosted=True), "parley.tool.server": server_label}
    span = parent.child(f"execute_tool {name}", about)
    try:
        yield span.fail
    finally:
        span.end()


def _end(span: Span, model: str, figures: Figures) -> None:
    ledger, finish = figures.ledger, "tool_calls" if figures.finish == "tool" else figures.finish
    if ledger is not None:
        span.set(ledger_attributes(ledger.ttfa_ms, ledger.terms))
    span.set({"gen_ai.response.finish_reasons": (finish,)})
    used = token_attributes(
        figures.input_tokens,
        figures.text_tokens,
        figures.audio_tokens,
        figures.cached_tokens,
        figures.audio_input_tokens,
    )
    add_stages(span, figures.stages, {"gen_ai.request.model": model}, used, time.monotonic())
    span.end()
