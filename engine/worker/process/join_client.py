"""A worker's connection to a server on another machine: connect, authenticate, send the Join message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from engine.errors import StageUnavailable, WireError
from engine.ipc import links, messages
from engine.ipc.handshake import GREETING, Visitor

AGAIN_S = 0.5  # seconds between two attempts while no server listens


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The server's address, and the worker's Join message."""

    host: str
    port: int
    token: bytes
    join: messages.Join
    wait_s: float
    """Seconds to wait for a server that does not listen yet."""


async def connect(call: JoinRequest, receive: links.Receive, lost: links.Lost) -> links.SocketLink:
    """Connect to the server and send the Join message.

    Raises:
        StageUnavailable: No server listens in time.
        WireError: It is not a Parley server of this version, has a different token, or rejects the worker.
    """
    try:
        async with asyncio.timeout(call.wait_s):
            while True:
                try:
                    return await _connect(call, receive, lost)
                except OSError:
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        where = f"{call.host}:{call.port}"
        raise StageUnavailable(
            f"no server accepted a connection at {where} within {call.wait_s:g} s; start it, or check the address"
        ) from None


async def _connect(call: JoinRequest, receive: links.Receive, lost: links.Lost) -> links.SocketLink:
    """Make one attempt. Raises OSError if no server listens."""
    loop = asyncio.get_running_loop()
    shaken: asyncio.Future[links.SocketLink] = loop.create_future()
    local = (call.join.address, 0) if call.join.address else None
    transport, _ = await loop.create_connection(
        lambda: _Knock(Visitor(call.token), shaken, lambda: links.SocketLink(receive, lost)),
        call.host,
        call.port,
        local_addr=local,
    )
    links.endure(transport)
    try:
        link = await shaken
    except BaseException:
        transport.abort()
        raise
    link.send(call.join)
    return link


class _Knock(asyncio.Protocol):
    """The handshake. Afterwards the transport belongs to the link."""

    def __init__(
        self, visitor: Visitor, shaken: asyncio.Future[links.SocketLink], make: Callable[[], links.SocketLink]
    ) -> None:
        self._visitor = visitor
        self._shaken = shaken
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        try:
            answer, rest = self._visitor.feed(data)
        except WireError as error:
            self._fail(error)
            return
        self._transport.write(answer)
        if self._visitor.done and not self._shaken.done():
            link = self._make()
            self._transport.set_protocol(link)
            link.connection_made(self._transport)
            self._shaken.set_result(link)
            link.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._visitor.asked:
            self._fail(WireError("the server hung up: it has a different token, or too many connections"))
        else:
            self._fail(ConnectionResetError("the server hung up"))

    def _fail(self, error: Exception) -> None:
        if not self._shaken.done():
            self._shaken.set_exception(error)
