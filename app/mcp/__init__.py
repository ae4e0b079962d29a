"""MCP tools that the server runs itself: the servers that its operator names, asked on behalf of clients.

Realtime sessions and ``/v1/responses`` both come in by this door. The SDK (``mcp``, the extra of that name) is imported
only once a server is asked. Knows no session, no route and no tensor.
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
