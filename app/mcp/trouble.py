"""The error of an MCP server, in the three kinds that the protocols distinguish."""

from __future__ import annotations

from typing import Literal

Kind = Literal["protocol_error", "tool_execution_error", "http_error"]


class ToolServerError(Exception):
    """An MCP error. ``str(error)`` is one sentence; ``code`` is JSON-RPC's, or the HTTP status of an ``http_error``."""

    def __init__(self, message: str, kind: Kind = "protocol_error", code: int = -32603) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.code = code
