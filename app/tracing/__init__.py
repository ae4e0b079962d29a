"""OpenTelemetry traces: spans of sessions, responses, stages and tool calls, named after the GenAI conventions.

Nothing is traced without ``server.otel.endpoint``. ``span`` and ``export`` are the only modules that import
OpenTelemetry. Source: OpenTelemetry's semantic conventions for generative AI.
"""

from app.tracing.answer_trace import answer_trace, traced_tool
from app.tracing.session_trace import SessionTrace
from app.tracing.tracing import Tracing

__all__ = ["SessionTrace", "Tracing", "answer_trace", "traced_tool"]
