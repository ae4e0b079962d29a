"""The traces of one server: on or off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.settings import Otel

if TYPE_CHECKING:
    from app.tracing.export import SpanExport
    from app.tracing.span import Attributes, Span


class Tracing:
    """Starts the traces of one server. ``server`` is its name. Without an endpoint, it starts none."""

    def __init__(self, settings: Otel, server: str | None = None) -> None:
        self.contents = settings.contents
        """Whether spans may contain words of conversations, and arguments and results of tools."""
        self._settings = settings
        self._server = server
        self._export: SpanExport | None = None

    def start(self) -> None:
        """Begin to export spans in a thread."""
        if self._settings.endpoint is not None:
            from app.tracing.export import SpanExport

            self._export = SpanExport(self._settings.endpoint, self._server)

    def close(self) -> None:
        """Export the remaining spans within some seconds. Blocks; may be called twice."""
        if self._export is not None:
            self._export.close()
            self._export = None

    @property
    def enabled(self) -> bool:
        return self._settings.endpoint is not None

    def root(self, name: str, attributes: Attributes) -> Span | None:
        """Start a trace, or continue the one that the current request names. None if tracing is off."""
        return None if self._export is None else self._export.root(name, attributes)
