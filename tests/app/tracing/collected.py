"""A server whose spans stay in this process, and questions about them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.tracing import export
from tests.app.rig import LoudnessVad, Running, running, script_spec

ENDPOINT = "http://127.0.0.1:9/v1/traces"
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}


class Collected:
    """The spans of one server, complete once it has stopped."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = [one for one in self.all if one.name == name]
        return span

    def below(self, parent: ReadableSpan) -> list[str]:
        """Return the names of a span's children, as they began."""
        assert parent.context is not None
        id = parent.context.span_id
        found = [one for one in self.all if one.parent is not None and one.parent.span_id == id]
        return [one.name for one in sorted(found, key=lambda one: one.start_time or 0)]


@asynccontextmanager
async def tracing_server(
    patch: pytest.MonkeyPatch, collected: Collected, contents: bool = False, **section: Any
) -> AsyncGenerator[Running]:
    patch.setattr(export, "exporter_to", lambda endpoint: collected.exporter)
    spec = script_spec(otel={"endpoint": ENDPOINT, "contents": contents}, **section)
    async with running(spec, vad=LoudnessVad) as server:
        yield server


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
