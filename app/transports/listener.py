"""The listener: connections are accepted a few in each turn of the event loop, so that a flood of them stalls nobody.

A place is taken before a handshake over TLS begins: asyncio's own server knows of a connection only when that is over.
Small messages leave at once: on a socket whose listener was bound by hand, asyncio leaves Nagle's algorithm on, and the
end of every answer would wait 40 ms for the peer's delayed acknowledgement. Knows no HTTP.
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
"""Accepted in a turn, with what they say at first. One at a time would let those wait who come behind many."""
BREATH_S = 0.1
"""Seconds that nobody is accepted where the system has no descriptor, and no memory for one."""


class SocketListener:
    """Accepts from one bound socket until it is closed; uvicorn takes it for an ``asyncio.Server``.

    ``make`` gives a connection its protocol, ``tls`` the context of its handshake, if it has one.
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
        """Accept nobody any more; who is connected stays. May be called twice."""
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
                        await asyncio.sleep(0)  # it would not yield by itself while there is somebody to accept

    async def _accept(self) -> tuple[socket.socket, str]:
        """The next connection, and where it comes from."""
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
        """Shake hands, and hand over to the protocol."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(connection), sock, ssl=self._tls()
            )
        except OSError:  # no TLS, no TLS that we speak, or it has left
            connection.gone()


def _hang_up(sock: socket.socket) -> None:
    """End a connection from below its handshake, which then fails."""
    with suppress(OSError):  # it has left by itself
        sock.shutdown(socket.SHUT_RDWR)
