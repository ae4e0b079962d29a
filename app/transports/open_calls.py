"""The open calls of all transports. By a call's id, others may listen to it, send it events, and end it.

Knows neither routes nor transports.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from app.limits.principal import Principal
from app.realtime.protocol.client_events import CreateItem, Received
from app.refusal import Closed
from app.transports.channel import Channel
from app.transports.connection import Connection
from app.transports.inbox import Inbox
from app.transports.opening import Opening


class OpenCall:
    """A connection with an ``id`` (the protocol's ``rtc_…``), by which other WebSockets find it.

    ``inbox`` receives the events of its client and of those WebSockets; the initial items of ``opening`` come first.
    """

    def __init__(self, id: str, opening: Opening, inbox: Inbox, connection: Connection) -> None:
        self.id = id
        self.maker = opening.caller
        self.inbox = inbox
        self.connection = connection
        for item in opening.history:
            inbox.put(Received(CreateItem(item)), 0)

    @contextmanager
    def listening(self, channel: Channel, most: int) -> Generator[None]:
        """Copy every event of the session to a channel while the block lasts, starting with the session's greeting.

        Raises Closed if there are already ``most`` listeners.
        """
        others = self.connection.resumable.others
        if len(others) >= most:
            message = f"This call already has its maximum of {most} additional WebSockets."
            raise Closed("too_many_sidebands", message, 429)
        others.add(channel.outbox)
        channel.put(self.connection.session.greeting())
        try:
            yield
        finally:
            others.discard(channel.outbox)


class OpenCalls:
    """The open calls of a server by id."""

    def __init__(self) -> None:
        self._calls: dict[str, OpenCall] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._calls)

    @contextmanager
    def add(self, call: OpenCall) -> Generator[None]:
        """Make a call available while the block lasts."""
        self._calls[call.id] = call
        try:
            yield
        finally:
            del self._calls[call.id]

    def find(self, id: str, caller: Principal) -> OpenCall | None:
        """Return the active call with this id if it belongs to the caller: the id appears in logs and is no secret."""
        call = self._calls.get(id)
        return call if call is not None and caller.reaches(call.maker) else None

    def hang_up(self, why: str) -> None:
        """End all calls."""
        for call in self._calls.values():
            call.connection.hang_up(why)
