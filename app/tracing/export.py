"""Export of spans over OTLP/HTTP, in a thread.

The event loop only puts a span into a queue. While the collector is unreachable, the queue drops its oldest spans.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.telemetry import ASKED, log
from app.tracing.span import Attributes, Span

QUEUED = 2048
"""Spans that wait for their export: some hundred turns."""
BATCH = 512
DELAY_MS = 1000.0
TIMEOUT_S = 3.0
"""Seconds for one batch, with its retries."""

# its messages repeat with each batch; ``ReportedExporter`` reports the first failure
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


class SpanExport:
    """Starts traces, and exports their spans to one collector."""

    def __init__(self, endpoint: str, server: str | None) -> None:
        about = {"service.name": "parley", **({} if server is None else {"service.instance.id": server})}
        self._exporter = ReportedExporter(exporter_to(endpoint), endpoint)
        self._provider = TracerProvider(ParentBased(ALWAYS_ON), Resource.create(about), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, QUEUED, DELAY_MS, BATCH))
        self._tracer = self._provider.get_tracer("parley")

    def root(self, name: str, attributes: Attributes) -> Span:
        """Start a trace, or continue the one of the current request's ``traceparent`` header."""
        parent = TraceContextTextMapPropagator().extract(dict(ASKED.get().trace), Context())
        return Span(self._tracer, self._tracer.start_span(name, parent, trace.SpanKind.SERVER, attributes))

    def close(self) -> None:
        """Export the remaining spans, and end the thread. Drops them if the collector fails."""
        self._exporter.closing = True
        self._provider.shutdown()


class ReportedExporter(SpanExporter):
    """Exports with ``inner``, and logs the first failure in a row."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._failing = False
        self.closing = False
        """Whether the first failure is the last attempt."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.closing and self._failing:
            return SpanExportResult.FAILURE
        result = self._inner.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            log("tracing.export_failed", endpoint=self._endpoint, hint="check server.otel.endpoint and the collector")
        elif self._failing and not failed:
            log("tracing.export_resumed", endpoint=self._endpoint)
        self._failing = failed
        return result

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._inner.force_flush(timeout_millis)


def exporter_to(endpoint: str) -> SpanExporter:
    """Return the exporter to a collector. It uses no proxy."""
    session = requests.Session()
    session.trust_env = False
    return OTLPSpanExporter(endpoint, timeout=TIMEOUT_S, session=session)
