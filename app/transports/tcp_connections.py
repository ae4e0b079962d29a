"""All TCP connections of a server: deadlines for each state, and which connection is closed when there are too many.

At any time, either the server owes the client something or it waits for the client. Each state in which it waits has a
deadline, so no client holds a descriptor for long by sending or reading nothing:

| State     | The server waits until the client                                   | Deadline       | Then    |
|-----------|---------------------------------------------------------------------|----------------|---------|
| HANDSHAKE | has completed the TLS handshake                                     | 10 s           | aborted |
| HEAD      | has sent a request's headers                                        | 10 s           | closed  |
| BODY      | has sent the body (app/http/body.py answers 408 after 120 s)        | 130 s          | closed  |
| REST      | has sent the rest of a body that was answered before its end        | 10 s           | closed  |
| READING   | has read some of a response, if more than 64 kB of it are buffered  | 30 s for 48 kB | aborted |
| IDLE      | sends another request                                               | 75 s           | closed  |
| CLOSING   | has read the output that was pending when the connection was closed | 10 s           | aborted |

The server's own work is limited elsewhere:

| State     | The server                | Limit                                                       |
|-----------|---------------------------|-------------------------------------------------------------|
| ANSWER    | produces a response       | the route's own                                             |
| UPGRADE   | decides about a WebSocket | 10 s, then closed                                           |
| OPEN      | uses a WebSocket          | a ping every 10 s, answered within 15 s; the session limits |

A connection that waits for its client is called idle. If there are too many of them, or no more descriptors, the
longest waiting one is closed for the new one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from app.client_address import subscriber


class State(Enum):
    """Which side waits for the other one, and for what."""

    HANDSHAKE = auto()
    HEAD = auto()
    BODY = auto()
    REST = auto()
    READING = auto()
    IDLE = auto()
    CLOSING = auto()
    ANSWER = auto()
    UPGRADE = auto()
    OPEN = auto()
    GONE = auto()


DEADLINES_S: dict[State, float] = {
    State.HANDSHAKE: 10.0,  # a slow phone needs one or two
    State.HEAD: 10.0,
    State.BODY: 130.0,
    State.REST: 10.0,  # closing a connection with unread input resets it, and the client would lose its response
    State.READING: 30.0,
    State.IDLE: 75.0,  # longer than clients and proxies keep a connection, so that they never use one that is closing
    State.CLOSING: 10.0,
    State.UPGRADE: 10.0,
}
"""Maximum seconds in a state."""

WAITING = frozenset(DEADLINES_S) - {State.UPGRADE}
"""States in which the server waits for the client."""

_UNREAD = frozenset({State.HANDSHAKE, State.READING, State.CLOSING})
"""States in which a close would wait for the client again."""


class TcpConnection:
    """One connection from accept to end: wraps a transport (whose attributes it has), and tracks the state's deadline.

    ``subscriber`` is its owner, if known. ``cut`` ends it as long as it has no transport; ``moved`` is called after
    each change of state.
    """

    def __init__(self, subscriber: str | None, cut: Callable[[], None], moved: Callable[[TcpConnection], None]) -> None:
        self.subscriber = subscriber
        self.state: State | None = None
        self._cut = cut
        self._moved = moved
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def carry(self, transport: asyncio.BaseTransport) -> None:
        """Set the transport."""
        self._transport = transport
        self._cut = self._transport.abort
        if self.state is State.GONE:
            self._cut()

    def enter(self, state: State) -> None:
        """Change the state. Re-entering the current state keeps its deadline."""
        if self.state in (state, State.GONE):
            return
        if self._timer is not None:
            self._timer.cancel()
        seconds = DEADLINES_S.get(state)
        self.state = state
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._expire)
        self._moved(self)

    def said_something(self) -> None:
        """Record activity: the connection is no longer the longest waiting one, although its deadline stays."""
        self._moved(self)

    def close(self) -> None:
        """End the connection once the client has read the pending output."""
        self.enter(State.CLOSING)
        self._transport.close()

    def cut(self) -> None:
        """End the connection now."""
        self.gone()
        self._cut()

    def gone(self) -> None:
        """Record the end of the connection. May be called twice."""
        self.enter(State.GONE)

    def _expire(self) -> None:
        if self.state in _UNREAD:
            self.cut()
        else:
            self.close()


class TcpConnections:
    """All connections of one server, at most ``most`` at a time.

    At most ``idle`` of them may wait for their client, and ``idle_per_address`` of one address (with IPv6, of one /64
    network). The second limit does not apply if ``shared(address)``, since many clients may share it. ``count`` is
    called for each connection that is closed for another one.
    """

    def __init__(
        self,
        most: int,
        idle: int,
        idle_per_address: int,
        shared: Callable[[str], bool],
        count: Callable[[], None] = lambda: None,
    ) -> None:
        self._most = most
        self._idle = idle
        self._idle_per_address = idle_per_address
        self._shared = shared
        self._count = count
        self._all: set[TcpConnection] = set()
        self._waiting: dict[TcpConnection, None] = {}  # the longest waiting one first
        self._of: Counter[str | None] = Counter()  # number of waiting connections by subscriber

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[TcpConnection]:
        return iter(self._all)

    @property
    def idle(self) -> int:
        """Return how many connections wait for their client."""
        return len(self._waiting)

    def accept(self, address: str, cut: Callable[[], None]) -> TcpConnection | None:
        """Return a new connection, which ``cut`` ends; None if there is neither room nor an idle connection to
        close.
        """
        if len(self._all) >= self._most and not self.cut_oldest():
            return None
        whose = None if self._shared(address) else subscriber(address)
        connection = TcpConnection(whose, cut, self._moved)
        self._all.add(connection)
        connection.enter(State.HANDSHAKE)
        return connection

    def cut_oldest(self, whose: str | None = None) -> bool:
        """Close the connection that has waited longest for its client, of all or of one subscriber.

        Returns whether there was one.
        """
        for connection in self._waiting:
            if whose is None or connection.subscriber == whose:
                self._count()
                connection.cut()
                return True
        return False

    def _moved(self, connection: TcpConnection) -> None:
        if connection in self._waiting:
            self._forget(connection)
        if connection.state is State.GONE:
            self._all.discard(connection)
        elif connection.state in WAITING:
            self._waiting[connection] = None
            self._of[connection.subscriber] += 1
            self._keep_bounds(connection.subscriber)

    def _keep_bounds(self, whose: str | None) -> None:
        if whose is not None and self._of[whose] > self._idle_per_address:
            self.cut_oldest(whose)
        elif len(self._waiting) > self._idle:
            self.cut_oldest()

    def _forget(self, connection: TcpConnection) -> None:
        del self._waiting[connection]
        self._of[connection.subscriber] -= 1
        if not self._of[connection.subscriber]:
            del self._of[connection.subscriber]
