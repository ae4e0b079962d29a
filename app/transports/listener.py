"""The listener: accepts a few connections in each turn of the event loop, so that a flood of them delays nobody.

A connection is counted before its TLS handshake: asyncio's server reports it only afterwards. Small messages are sent
at once: for a listening socket that was bound by hand, asyncio leaves Nagle's algorithm on, and the end of every
response would wait 40 ms for a delayed acknowledgement.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from app.telemetry import log
from app.transports.tcp_connections import TcpConnection, TcpConnections

EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
AT_ONCE = 4
"""Connections accepted per turn, with their first input. A single one would delay those that arrive after many
others.
"""
BREATH_S = 0.1
"""Seconds without accepting after the system ran out of descriptors or memory."""


class SocketListener:
    """Accepts from one bound socket until it is closed; uvicorn uses it like an ``asyncio.Server``.

    ``make`` creates a connection's protocol, ``tls`` returns the context of its handshake, if any.
    """

    def __init__(
        self,
        sock: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
        connections: TcpConnections,
        make: Callable[[TcpConnection], asyncio.Protocol],
        backlog: int = 2048,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._connections = connections
        self._make = make
        sock.setblocking(False)
        sock.listen(backlog)
        self._task = asyncio.create_task(self._listen(), name="listener")

    def close(self) -> None:
        """Stop accepting. Open connections stay. May be called twice."""
        self._task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._task])

    async def _listen(self) -> None:
        with self._sock:
            async with asyncio.TaskGroup() as handshakes:
                for number in itertools.count():
                    sock, address = await self._accept()
                    connection = self._connections.accept(address, partial(_hang_up, sock))
                    if connection is None:
                        sock.close()
                    else:
                        handshakes.create_task(self._open(sock, connection), name=f"open:{address}")
                    if number % AT_ONCE == 0:
                        await asyncio.sleep(0)  # it would not yield while connections are waiting

    async def _accept(self) -> tuple[socket.socket, str]:
        """Return the next connection and its address."""
        while True:
            try:
                sock, peer = await asyncio.get_running_loop().sock_accept(self._sock)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    log("server.exhausted", error=error.strerror, connections=len(self._connections))
                    self._connections.cut_oldest()
                    await asyncio.sleep(BREATH_S)
            else:
                return sock, peer[0]

    async def _open(self, sock: socket.socket, connection: TcpConnection) -> None:
        """Complete the handshake, and start the protocol."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(connection), sock, ssl=self._tls()
            )
        except OSError:  # not TLS, an unsupported version, or the peer has left
            connection.gone()


def _hang_up(sock: socket.socket) -> None:
    """Shut down a connection during its handshake, which then fails."""
    with suppress(OSError):  # the peer has already left
        sock.shutdown(socket.SHUT_RDWR)
