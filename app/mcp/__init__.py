"""MCP tools that the server runs itself, on MCP servers configured by the operator, on behalf of clients.

Used by Realtime sessions and ``/v1/responses``. The SDK (``mcp``, the extra of that name) is imported only if a server
is configured. Independent of sessions and routes.
"""

from __future__ import annotations

from app.mcp.entry import ToolServerEntry
from app.mcp.tool_server import MOST_CALLS, MOST_SERVERS, CallResult, HostedTool, ToolServer, ToolServers, functions_of
from app.mcp.trouble import ToolServerError

__all__ = [
    "MOST_CALLS",
    "MOST_SERVERS",
    "CallResult",
    "HostedTool",
    "ToolServer",
    "ToolServerEntry",
    "ToolServerError",
    "ToolServers",
    "functions_of",
]
