"""One call: a session over WebRTC, with the WebSockets that listen to it.

It ends like every connection (``connection``): when the client hangs up, closes the data channel or vanishes, when the
session expires, or when the server drains.
"""

from __future__ import annotations

from dataclasses import replace

from app.live import LiveDialect
from app.realtime.ports import CALL
from app.realtime.session_context import SessionContext
from app.service import Service
from app.transports.connection import Connection
from app.transports.inbox import Inbox
from app.transports.open_calls import OpenCall
from app.transports.opening import Opening
from app.transports.resumable_session import ResumableSessions
from app.transports.webrtc.peer_connection import PeerConnection


class PeerCall(OpenCall):
    """A WebRTC call. ``id`` is the protocol's ``rtc_…``."""

    def __init__(
        self, id: str, service: Service, context: SessionContext, sessions: ResumableSessions, opening: Opening
    ) -> None:
        maker, pace = opening.caller, service.pace(opening.caller)
        inbox = Inbox(pace, context.now)
        context = replace(context, loop_time=service.loop_time(maker, pace))
        self._settings = service.settings
        self._loop_time = context.loop_time
        self._context = context
        self.id = id
        self.inbox = inbox
        self._dialect = opening.dialect
        self.peer = self.new_peer()
        profile = replace(CALL, lateness=service.lateness)
        connection = Connection(service, sessions, context, self.peer.channel, replace(opening, profile=profile))
        super().__init__(id, opening, inbox, connection)

    def new_peer(self) -> PeerConnection:
        """Return another connection for the call's client: the first one, or one for resuming."""
        context = self._context
        camera = context.camera
        peer = PeerConnection(
            self.id, self._settings, self.inbox, self._loop_time, camera, context.now, dialect=self._dialect
        )
        if isinstance(self._dialect, LiveDialect):
            peer.channel.permissions = self._dialect.config.permissions
        return peer
