"""One visit to an MCP server with the SDK: connect, send a request, disconnect. Limited in time, bytes and messages.

The SDK's check of results against the tool's schema is not used: the MCP server controls the schema, and so the cost of
the check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

import httpx2
import mcp_types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from app.mcp.transport import MOST_BYTES, PinnedTransport
from app.mcp.trouble import ToolServerError

T = TypeVar("T")
CONNECT_S = 5.0
GOODBYE_S = 2.0
MOST_PAGES = 16
"""Maximum number of pages of a tool list."""

MOST_REQUESTS = 16
"""Maximum requests of the server to its client during a visit. The SDK starts a task for each, and refuses all but
pings."""

# the SDK logs contents from servers; our logs have only ids, counts and times
logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs addresses that clients name


async def visit(
    url: str, address: str, headers: dict[str, str], timeout_s: float, ask: Callable[[ClientSession], Awaitable[T]]
) -> T:
    """Return the result of ``ask`` in a new session. Raises only ToolServerError."""
    transport = PinnedTransport(httpx2.URL(url), address)
    timeout = httpx2.Timeout(None, connect=CONNECT_S)
    sent = {**headers, "accept-encoding": "identity", "user-agent": "parley"}
    try:
        async with httpx2.AsyncClient(transport=transport, headers=sent, timeout=timeout, trust_env=False) as http:
            async with asyncio.timeout(timeout_s):
                result = await _asked(url, http, transport, ask)
            await _leave(url, http, transport.session_id)  # with a time limit of its own, since the request is done
            return result
    except TimeoutError:
        raise ToolServerError(f"The MCP server did not respond within {timeout_s:g} s.") from None
    except (MCPError, httpx2.HTTPError, ValidationError, RuntimeError, OSError, ExceptionGroup) as error:
        raise transport.failure or _named(error) from None


async def _asked(
    url: str, http: httpx2.AsyncClient, transport: PinnedTransport, ask: Callable[[ClientSession], Awaitable[T]]
) -> T:
    streams = streamable_http_client(url, http_client=http, terminate_on_close=False, max_sse_event_size=MOST_BYTES)
    async with streams as (received, sent), ClientSession(_Received(received, transport), sent) as session:
        await session.initialize()
        return await ask(session)


class _Received:
    """The server's messages as the SDK reads them, without notifications, and with few of the server's requests."""

    def __init__(self, messages: ReadStream[SessionMessage | Exception], transport: PinnedTransport) -> None:
        self._messages = messages
        self._transport = transport
        self._requests = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while True:
            found = await anext(self._messages)
            if isinstance(found, Exception):
                return found
            match found.message:
                case mcp_types.JSONRPCNotification():
                    continue
                case mcp_types.JSONRPCRequest():
                    self._requests += 1
                    if self._requests > MOST_REQUESTS:
                        message = f"The MCP server made more than {MOST_REQUESTS} requests to its client."
                        raise self._transport.failed(ToolServerError(message))
                    return found
                case _:
                    return found

    async def receive(self) -> SessionMessage | Exception:
        return await anext(self)

    async def aclose(self) -> None:
        await self._messages.aclose()

    async def __aenter__(self) -> Self:
        await self._messages.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self._messages.__aexit__(exc_type, exc_val, exc_tb)


async def _leave(url: str, http: httpx2.AsyncClient, session_id: str | None) -> None:
    """End the MCP session. The response is not awaited for long."""
    if session_id is None:
        return
    try:
        async with asyncio.timeout(GOODBYE_S):
            await http.delete(url, headers={"mcp-session-id": session_id})
    except (TimeoutError, httpx2.HTTPError):
        pass


def _named(error: Exception) -> ToolServerError:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    match error:
        case ToolServerError():
            return error
        case MCPError():
            return ToolServerError(f"The MCP server's error: {error.error.message[:500]}", code=error.error.code)
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return ToolServerError("The MCP server is unreachable.")
        case ValidationError():
            return ToolServerError("The MCP server's response violates the protocol.")
        case _:
            return ToolServerError("The connection to the MCP server was lost.")


async def list_tools(session: ClientSession) -> list[mcp_types.Tool]:
    """Return all tools of the server."""
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        params = mcp_types.PaginatedRequestParams(cursor=cursor)
        page = await session.send_request(mcp_types.ListToolsRequest(params=params), mcp_types.ListToolsResult)
        tools += page.tools
        if (cursor := page.next_cursor) is None:
            return tools
    raise ToolServerError(f"The MCP server's list of tools has more than {MOST_PAGES} pages.")


async def call_tool(session: ClientSession, name: str, arguments: dict[str, object]) -> mcp_types.CallToolResult:
    params = mcp_types.CallToolRequestParams(name=name, arguments=arguments)
    return await session.send_request(mcp_types.CallToolRequest(params=params), mcp_types.CallToolResult)
