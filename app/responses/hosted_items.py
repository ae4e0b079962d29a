"""Items of MCP tools in a response: a server's tool list, a call that runs on this server, a request for approval.

Source: openai-python ``types/responses``: ``McpListTools``, ``McpCall``, ``McpApprovalRequest``. Sans-I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from app.ids import new_id
from app.mcp import CallResult, ToolServerError
from engine import Message, ToolCallPart, ToolResultPart

Event = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete", "failed"]


def event(type: str, place: dict[str, Any], **fields: Any) -> Event:
    return {"type": f"response.{type}", **place, **fields}


@dataclass(slots=True, kw_only=True)
class ResponseItem:
    """An item of a response's output: its index, its id and its status."""

    index: int
    id: str
    status: Status = "in_progress"

    def opened(self) -> list[Event]:
        """Return the events that follow its ``added`` event."""
        return []

    def closed(self) -> list[Event]:
        """Return the events that precede its ``done`` event."""
        return []

    def place(self) -> dict[str, Any]:
        return {"item_id": self.id, "output_index": self.index}


@dataclass(slots=True, kw_only=True)
class ToolListing(ResponseItem):
    """The tools of one server, once they are known."""

    id: str = field(default_factory=lambda: new_id("mcpl"))
    server_label: str
    tools: tuple[dict[str, Any], ...] = ()
    """In the form of the protocol."""
    error: str | None = None

    def item(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "mcp_list_tools", "server_label": self.server_label}
        return {**head, "tools": list(self.tools), "error": self.error}

    def opened(self) -> list[Event]:
        return [event("mcp_list_tools.in_progress", self.place())]

    def closed(self) -> list[Event]:
        return [event(f"mcp_list_tools.{'failed' if self.error is not None else 'completed'}", self.place())]


@dataclass(slots=True, kw_only=True)
class HostedCall(ResponseItem):
    """A call of a tool, with its result once it has run. ``whole`` is set when all arguments have arrived."""

    id: str = field(default_factory=lambda: new_id("mcp"))
    call_id: str
    server_label: str
    name: str
    function: str
    """The tool's name in the prompt."""
    arguments: str = ""
    whole: bool = False
    approval_request_id: str | None = None
    result: CallResult | None = None

    def item(self) -> dict[str, Any]:
        result = self.result or CallResult()
        return {
            "id": self.id,
            "type": "mcp_call",
            "status": self.status,
            "server_label": self.server_label,
            "name": self.name,
            "arguments": self.arguments,
            "approval_request_id": self.approval_request_id,
            "output": result.output,
            "error": None if result.error is None else _error(result.error),
        }

    def messages(self) -> tuple[Message, Message]:
        """Return the call and its result as messages for the LLM."""
        text = self.result.text if self.result is not None else ""
        call = Message("assistant", (ToolCallPart(self.function, self.arguments, self.call_id),))
        return call, Message("tool", (ToolResultPart(self.call_id, text),))

    def opened(self) -> list[Event]:
        return [event("mcp_call.in_progress", self.place())]

    def closed(self) -> list[Event]:
        return [event(f"mcp_call.{'completed' if self.status == 'completed' else 'failed'}", self.place())]


@dataclass(slots=True, kw_only=True)
class ApprovalRequest(ResponseItem):
    """A call that the client must approve. The client sees it once its arguments are complete."""

    id: str = field(default_factory=lambda: new_id("mcpr"))
    call_id: str
    server_label: str
    name: str
    function: str
    arguments: str = ""

    def item(self) -> dict[str, Any]:
        head = {"id": self.id, "type": "mcp_approval_request", "arguments": self.arguments}
        return {**head, "server_label": self.server_label, "name": self.name}


def _error(error: ToolServerError) -> dict[str, Any]:
    if error.kind == "tool_execution_error":
        return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": str(error)}]}
    kind = "http_error" if error.kind == "http_error" else "mcp_protocol_error"
    return {"type": kind, "code": error.code, "message": str(error)}
