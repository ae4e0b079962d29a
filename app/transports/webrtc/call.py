"""One call: a session whose client speaks over WebRTC, and the sockets that listen beside it.

Its life is every connection's (``connection``): it ends when the client hangs up, closes the data channel or vanishes,
when the session expires, or when the server drains.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from app.realtime.ports import PlayoutProfile
from app.realtime.session_context import SessionContext
from app.service import Closed, Service
from app.transports.channel import Channel
from app.transports.connection import Connection, Opening
from app.transports.resumable_session import ResumableSessions
from app.transports.webrtc.inbox import Inbox
from app.transports.webrtc.peer_connection import PeerConnection

PROFILE = PlayoutProfile(lead_s=0.040, packet_s=0.020, plays=True)
"""At most 60 ms leave ahead of the listener: a barge-in can't recall them, and a busy machine needs them."""


class Call:
    """``id`` is the protocol's ``rtc_…``; ``connected`` is called when the first peer has connected."""

    def __init__(
        self, id: str, service: Service, context: SessionContext, sessions: ResumableSessions, opening: Opening
    ) -> None:
        self.id, self.maker = id, opening.caller
        self.inbox = Inbox(service.pace(opening.caller), context.now)
        self._settings, self._loop_time, self._context = service.settings, context.loop_time(), context
        self.peer = self.new_peer()
        self.connection = Connection(service, sessions, context, self.peer.channel, replace(opening, profile=PROFILE))

    def new_peer(self) -> PeerConnection:
        """Another connection of the call's client: the first one, or one that it comes back over."""
        context = self._context
        return PeerConnection(self.id, self._settings, self.inbox, self._loop_time, context.camera, context.now)

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
