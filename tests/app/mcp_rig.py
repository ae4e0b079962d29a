"""MCP servers on loopback: a real one of the SDK's, and ones that say whatever a test wants them to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from tests.app.rig import eventually


@dataclass
class Library:
    """A real server with a few tools; ``calls`` are those that came, and ``keys`` the authorization of each."""

    url: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    keys: list[str | None] = field(default_factory=list[str | None])

    def entry(self, **fields: Any) -> dict[str, Any]:
        """A client's entry for it."""
        head = {"type": "mcp", "server_label": "library", "server_url": self.url, "require_approval": "never"}
        return {**head, **fields}

    def named(self, **fields: Any) -> list[dict[str, Any]]:
        """The ``server.mcp`` of an operator who names it."""
        return [{"url": self.url, "private": True, **fields}]


@asynccontextmanager
async def library() -> AsyncGenerator[Library]:
    """A server that is there while the block lasts; it answers with JSON, for its streams leave a task behind."""
    known = Library()
    server = MCPServer("library")

    @server.tool(description="Where a book stands.", annotations=ToolAnnotations(read_only_hint=True))
    async def shelf(title: str, ctx: Context) -> str:  # pyright: ignore[reportUnusedFunction]
        headers: Any = ctx.headers or {}
        known.calls.append(("shelf", {"title": title}))
        known.keys.append(headers.get("authorization"))
        return f"{title} is on shelf nine"

    @server.tool(description="Lend a book.")
    async def lend(title: str) -> str:  # pyright: ignore[reportUnusedFunction]
        known.calls.append(("lend", {"title": title}))
        raise ToolError("nobody may lend that")

    @server.tool()
    async def archive() -> str:  # pyright: ignore[reportUnusedFunction]
        known.calls.append(("archive", {}))
        return "x" * 100_000

    async with _serving(server.streamable_http_app(json_response=True)) as port:
        known.url = f"http://127.0.0.1:{port}/mcp"
        yield known


@asynccontextmanager
async def _serving(app: Any) -> AsyncGenerator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="library")
    try:
        await eventually(lambda: server.started)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


Reply = Callable[[dict[str, Any]], "bytes | Awaitable[bytes]"]
"""The whole HTTP answer to a message; ``answer``, ``head`` and ``result`` make some."""


@dataclass
class Liar:
    """A server that begins well and then replies as it is told; ``asked`` are the heads and messages that came."""

    port: int = 0
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "") for _, message in self.asked]


@asynccontextmanager
async def liar(reply: Reply, session_id: str | None = None) -> AsyncGenerator[Liar]:
    """A server that answers ``initialize``, with a session of that id, then what ``reply`` makes of each request."""
    known, serving = Liar(), set[asyncio.Task[Any]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(x[15:]) for x in head.lower().split("\r\n") if x.startswith("content-length:")), 0)
                message = json.loads(await reader.readexactly(length) or b"{}")
                known.asked.append((head, message))
                made = _begun(message, session_id) or reply(message)
                writer.write(made if isinstance(made, bytes) else await made)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    known.port = server.sockets[0].getsockname()[1]
    try:
        yield known
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving)


def _begun(message: dict[str, Any], session_id: str | None) -> bytes | None:
    match message.get("method"):
        case "initialize":
            info = {"name": "liar", "version": "1"}
            fields = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            session = {} if session_id is None else {"mcp_session_id": session_id}
            return answer({"jsonrpc": "2.0", "id": message["id"], "result": fields}, **session)
        case "notifications/initialized" | None:
            return head(202, b"")
        case _:
            return None


def result(message: dict[str, Any], **fields: Any) -> bytes:
    return answer({"jsonrpc": "2.0", "id": message.get("id"), "result": fields})


def answer(value: Any, **headers: str) -> bytes:
    return head(200, json.dumps(value).encode(), **{"content_type": "application/json", **headers})


def head(status: int, body: bytes, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *lines, "", ""]).encode() + body


def tool(name: str = "look", **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {}}, **fields}
