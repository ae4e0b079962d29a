"""One span of a trace, with the server's monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context

Attributes = Mapping[str, str | bool | int | float | tuple[str, ...]]


class Span:
    """A span that has started. It is exported once it has ended. Spans may end in any order."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    def child(self, name: str, attributes: Attributes, begun_s: float | None = None) -> Span:
        """Start a span below this one, at ``begun_s`` in monotonic seconds or now."""
        parent = trace.set_span_in_context(self._span, Context())
        begun_ns = None if begun_s is None else _wall_ns(begun_s)
        span = self._tracer.start_span(name, parent, trace.SpanKind.INTERNAL, attributes, start_time=begun_ns)
        return Span(self._tracer, span)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def event(self, name: str, attributes: Attributes, at_s: float | None = None) -> None:
        self._span.add_event(name, attributes, None if at_s is None else _wall_ns(at_s))

    def fail(self, error: str) -> None:
        """Mark the span as failed, with the error's code. Error messages may quote contents and are left out."""
        self._span.set_attribute("error.type", error)
        self._span.set_status(trace.StatusCode.ERROR)

    def end(self, ended_s: float | None = None) -> None:
        """End the span at ``ended_s`` in monotonic seconds or now."""
        self._span.end(None if ended_s is None else _wall_ns(ended_s))


def _wall_ns(at_s: float) -> int:
    return time.time_ns() + round((at_s - time.monotonic()) * 1e9)
