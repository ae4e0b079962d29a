"""The calls that are open, whatever carries them: others may listen to one, command it and end it, by its id.

Knows no route, and not what a call is carried by.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from app.limits.principal import Principal
from app.realtime.protocol.client_events import CreateItem, Received
from app.refusal import Closed
from app.transports.channel import Channel
from app.transports.connection import Connection, Opening
from app.transports.inbox import Inbox


class OpenCall:
    """A connection that has an ``id`` (the protocol's ``rtc_…``), so that sockets beside it find it.

    ``inbox`` is the line of all that its client and those sockets say; the history of its ``opening`` comes first.
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
        """Put every event of the session into a channel too, while the block lasts; first what the client got first.

        Raises Closed beyond so many listeners.
        """
        others = self.connection.resumable.others
        if len(others) >= most:
            message = f"{most} sockets listen to this call already, as many as may."
            raise Closed("too_many_sidebands", message, 429)
        others.add(channel.outbox)
        channel.put(self.connection.session.greeting())
        try:
            yield
        finally:
            others.discard(channel.outbox)


class OpenCalls:
    """The open calls of a server, by their ids."""

    def __init__(self) -> None:
        self._calls: dict[str, OpenCall] = {}

    @property
    def ids(self) -> list[str]:
        return list(self._calls)

    @contextmanager
    def add(self, call: OpenCall) -> Generator[None]:
        """Let others find a call while the block lasts."""
        self._calls[call.id] = call
        try:
            yield
        finally:
            del self._calls[call.id]

    def find(self, id: str, caller: Principal) -> OpenCall | None:
        """The call of this id, while it lasts, for those whose it is: its id stands in logs, and is no secret."""
        call = self._calls.get(id)
        return call if call is not None and caller.reaches(call.maker) else None

    def hang_up(self, why: str) -> None:
        """End all of them."""
        for call in self._calls.values():
            call.connection.hang_up(why)
