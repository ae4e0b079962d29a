"""The connections between a server and its workers: a stream socket, or a pair of linked objects in one process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol, cast

from engine.errors import WireError
from engine.ipc.messages import Mapped, Message, MessageCodec, Open, Splitter
from engine.ipc.shared_memory import POSSIBLE, SharedMemory

log = logging.getLogger(__name__)

ALONE_S = 10.0  # a peer that acknowledges no data for this long counts as gone


class Link(Protocol):
    """One end of a connection. Received messages go to a callback.

    ``send`` never waits. ``close`` first transmits the messages that were sent. ``abort`` discards these messages, for
    a peer that no longer reads.
    """

    def send(self, message: Message) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


Receive = Callable[[Message], None]
Lost = Callable[[], None]


class SocketLink(asyncio.Protocol):
    """A link over a stream socket.

    ``lost`` is called once when the connection ends, also if the peer sends invalid data. Writes are not awaited: the
    credit of each run limits the data under way. With ``near``, for two processes on one machine, large arrays go
    through shared memory.

    Within one turn of the event loop, the first message is written at once and all later ones in one write: otherwise a
    step of 16 requests would take 16 system calls. Open messages always wait for that second write, so that new
    requests arrive together and the first is not stepped alone.
    """

    def __init__(self, receive: Receive, lost: Lost, near: bool = False) -> None:
        self._receive = receive
        self._lost = lost
        self._shared = SharedMemory() if near and POSSIBLE else None
        self._codec = MessageCodec(self._shared)
        self._splitter = Splitter(codec=self._codec)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._gathering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._splitter.feed(data):
                if self._shared is not None and self._settle(message, self._shared):
                    continue
                self._receive(message)
        except WireError as error:
            log.warning("closing a connection after invalid data: %s", error)
            self.abort()

    def _settle(self, message: Message, shared: SharedMemory) -> bool:
        """Exchange Mapped messages. Return whether ``message`` was one, which needs no further handling."""
        if self._codec.mapped:
            self.send(Mapped(tuple(self._codec.mapped)))
            self._codec.mapped.clear()
        if isinstance(message, Mapped):
            for file in message.files:
                shared.release(file)
        return isinstance(message, Mapped)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._shared is not None:
            self._shared.close()
        self._lost()

    def send(self, message: Message) -> None:
        if self._transport is None:
            return
        frame, first = self._codec.encode(message), not self._gathering
        if first and not isinstance(message, Open):
            self._transport.write(frame)
        else:
            self._unsent.append(frame)
        if first:
            self._gathering = True
            asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        unsent = self._unsent
        self._unsent = []
        self._gathering = False
        if self._transport is not None and unsent:
            self._transport.write(b"".join(unsent))


class LocalLink:
    """One end of a link inside a process: it passes messages on as objects, without encoding them."""

    def __init__(self, receive: Receive, lost: Lost) -> None:
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self.peer: LocalLink | None = None

    def send(self, message: Message) -> None:
        if self.peer is not None:
            self._loop.call_soon(self.peer._receive, message)

    def close(self) -> None:
        peer = self.peer
        self.peer = None
        if peer is not None:
            peer.peer = None
            self._loop.call_soon(peer._lost)
            self._loop.call_soon(self._lost)

    abort = close


def local_pair(left: tuple[Receive, Lost], right: tuple[Receive, Lost]) -> tuple[LocalLink, LocalLink]:
    """Return two connected ends, each made from its callbacks (receive, lost)."""
    one, two = LocalLink(*left), LocalLink(*right)
    one.peer = two
    two.peer = one
    return one, two


def endure(transport: asyncio.Transport) -> None:
    """Close the connection if the peer acknowledges nothing for ALONE_S seconds, where the system supports that."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(ALONE_S * 1000))
