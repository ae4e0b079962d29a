"""A server that answers as a test says, down to the byte: for what real servers do on bad days."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    head: dict[str, str]
    body: Any


@dataclass
class Connection:
    """What a reply may do: send bytes, or wait until the client is gone."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Returns once the client has closed the connection."""
        while await self.reader.read(1 << 16):
            pass


Reply = Callable[[Connection], Awaitable[bool | None]]
"""Answers one request. False closes the connection."""


@dataclass
class Scripted:
    """Answers the n-th request by the n-th reply, and all further ones by the last."""

    replies: list[Reply]
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    port: int = 0
    scheme: str = "http"
    models: Reply | None = None
    probed: int = 0

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        connection = Connection(reader, writer)
        try:
            while (asked := await _read(connection)) is not None:
                if self.models is not None and asked.path.endswith("/models"):
                    self.probed += 1
                    reply = self.models
                else:
                    self.asked.append(asked)
                    reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
                if await reply(connection) is False:
                    break
        except (ConnectionError, ssl.SSLError, asyncio.CancelledError):  # the client went, or the test is over
            self.aborted.set()
        finally:
            writer.close()


@asynccontextmanager
async def scripted(
    *replies: Reply, port: int = 0, certificate: ssl.SSLContext | None = None, models: Reply | None = None
) -> AsyncGenerator[Scripted]:
    """With ``models`` that is the reply to who asks for their list, and is no request."""
    server = Scripted(list(replies), scheme="https" if certificate else "http", models=models)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", port, ssl=certificate)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)


def stream(*events: Any, done: bool = True, end: str = "\n\n", cuts: int | None = None) -> Reply:
    """An event stream as servers send it, in pieces of ``cuts`` bytes."""
    data = b"".join(f"data: {event if isinstance(event, str) else json.dumps(event)}{end}".encode() for event in events)
    data += f"data: [DONE]{end}".encode() if done else b""
    return raw_stream(*(data[at : at + cuts] for at in range(0, len(data), cuts)) if cuts else (data,))


def raw_stream(*pieces: bytes) -> Reply:
    async def reply(connection: Connection) -> None:
        await connection.send(STREAM_HEAD)
        for piece in pieces:
            await connection.send(chunk(piece))
            await asyncio.sleep(0)
        await connection.send(b"0\r\n\r\n")

    return reply


def stalled(*events: Any) -> Reply:
    """Sends events, and nothing more until the client goes."""

    async def reply(connection: Connection) -> bool:
        await connection.send(STREAM_HEAD)
        for event in events:
            await connection.send(chunk(f"data: {json.dumps(event)}\n\n".encode()))
        await connection.gone()
        raise ConnectionResetError

    return reply


def sound(*pieces: bytes, kind: str = "audio/pcm", ends: bool = True) -> Reply:
    """A body of any type, in chunks; where it does not end, the connection is closed within it."""

    async def reply(connection: Connection) -> bool:
        await connection.send(STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", kind.encode()))
        for piece in pieces:
            await connection.send(chunk(piece))
            await asyncio.sleep(0)
        if ends:
            await connection.send(b"0\r\n\r\n")
        return ends

    return reply


def broken(*events: Any, head: bool = True) -> Reply:
    """Sends events, and closes the connection without an end."""

    async def reply(connection: Connection) -> bool:
        if head:
            await connection.send(STREAM_HEAD)
        for event in events:
            await connection.send(chunk(f"data: {json.dumps(event)}\n\n".encode()))
        return False

    return reply


def answer(status: int, body: Any = b"", kind: str = "application/json", **head: str) -> Reply:
    """A response that is no stream."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} x", f"content-type: {kind}", f"content-length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in head.items()]

    async def reply(connection: Connection) -> None:
        await connection.send("\r\n".join([*lines, "", ""]).encode() + data)

    return reply


def text(piece: str, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """An event with a piece of text."""
    return {"choices": [{"index": 0, "delta": {"content": piece, **delta}, "finish_reason": finish}]}


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    """An event with a piece of a call: ``index``, ``id`` and ``name`` as given."""
    function = {name: fields.pop(name) for name in ("name",) if name in fields}
    if arguments is not None:
        function["arguments"] = arguments
    return delta(tool_calls=[{**fields, "function": function}])


def words(*pieces: str) -> Sequence[Any]:
    """The events of a plain answer."""
    return [delta(role="assistant"), *(text(piece) for piece in pieces), text("", "stop")]


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def _read(connection: Connection) -> Asked | None:
    reader = connection.reader
    try:
        first = await reader.readexactly(1)
        if first == b"\x16":  # a TLS handshake
            await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return None
        lines = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = lines[0].split(" ")
    head = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    data = await reader.readexactly(int(head.get("content-length", 0)))
    is_json = data and head.get("content-type", "").startswith("application/json")
    return Asked(method, path, head, json.loads(data) if is_json else data or None)
