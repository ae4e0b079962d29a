"""One call: a session, and the WebRTC connection that carries it, from the offer until nothing of it is left.

Where its client asked for it, the session outlives a connection for a while, and the client may come back over another
one (``join``). Whatever else ends first ends the rest: the client hangs up, closes the channel or vanishes, the session
expires, the server drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from typing import Any

from app.callers import Caller
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.server_events import AudioDelta, ServerEvent
from app.realtime.protocol.to_wire import encode
from app.realtime.session import Session
from app.realtime.session_context import SessionContext
from app.service import Closed, Service
from app.telemetry import audit
from app.transports.disconnect import Disconnect, first, watch, while_valid
from app.transports.outbox import Outbox
from app.transports.resumable_session import ResumableSession, ResumableSessions
from app.transports.webrtc.inbox import Inbox
from app.transports.webrtc.peer_connection import PeerConnection

LEAD_S, PACKET_S = 0.040, 0.020
"""At most 60 ms leave ahead of the listener: a barge-in can't recall them, and a busy machine needs them."""


class Call:
    """``id`` is the protocol's ``rtc_…``. ``start`` are the settings that its session begins with.

    ``maker`` is whose it is.
    """

    def __init__(
        self,
        id: str,
        home: tuple[Service, SessionContext, ResumableSessions],
        start: dict[str, Any] | None,
        model: str = "",
        maker: Caller | None = None,
    ) -> None:
        self._service, context, self._resumable_sessions = home
        self.id, self.inbox = id, Inbox(self._service.pace(maker), context.now)
        self.now = context.now
        self.loop_time = context.loop_time()
        """Of the event loop, for what comes in over its connections."""
        peer = self.peer = PeerConnection(id, self._service.settings, self.inbox, self.loop_time, context.now)
        self.maker = maker or Caller()
        self.resumable = ResumableSession(peer.channel, self.maker)
        self._over = asyncio.Event()
        self._why = ""
        profile = PlayoutProfile(
            LEAD_S,
            PACKET_S,
            plays=True,
            lag_s=lambda: self.peer.lag_s,
            new_resume_token=lambda: self._resumable_sessions.issue(self.resumable),
            set_delay=self._set_delay,
        )
        self._session = Session(context, self._emit, model, start, profile)
        self.resumable.away, self.resumable.back = self._session.away, self._session.back

    async def run(self) -> None:
        """Serve the call until it ends; then nothing of it is left but its connection."""
        leave, peer, begun_s = Disconnect(1000, ""), self.peer, self.now()
        try:
            async with asyncio.TaskGroup() as tasks, aclosing(self.resumable.received()) as received:
                tasks.create_task(self._carry(peer), name=f"leg:{self.id}")
                tasks.create_task(self._watch_hang_up(), name=f"hang-up:{self.id}")
                tasks.create_task(watch(self._session, self._service), name=f"watch:{self.id}")
                tasks.create_task(while_valid(self._session, self.maker), name=f"key:{self.id}")
                await self._session.run(received)
                raise Disconnect(1000, "the client stayed away", "gone")
        except* Disconnect as disconnects:
            leave = first(disconnects)
        finally:
            self._resumable_sessions.forget(self.resumable)
            self.resumable.end(leave)
        session, lasted_s = self._session, self.now() - begun_s
        audit("call.closed", call=self.id, session=session.id, code=leave.code, reason=leave.reason, lasted_s=lasted_s)
        if leave.how == "goodbye" and not peer.channel.over.is_set():
            await peer.say_goodbye()

    async def join(self, peer: PeerConnection, after: int) -> None:
        """Go on over another connection, until that one ends: the events behind ``after`` are told again there."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._end_with_session(), name=f"end:{self.id}")
                tasks.create_task(self._attach(peer, after), name=f"attach:{self.id}")
                await self._carry(peer)
                raise Disconnect(1000, "the client left", "gone")
        except* Disconnect as disconnects:
            if first(disconnects).how == "goodbye":
                await peer.say_goodbye()

    def hang_up(self, why: str) -> None:
        """End the call. May be called twice."""
        self._why = self._why or why
        self._over.set()

    def say(self, received: Received, size: int) -> None:
        """An event for the session, of so many bytes, of another one who may speak for its client."""
        self.inbox.put(received, size)

    def greet(self, outbox: Outbox) -> None:
        """Tell one who comes later what the client was told first."""
        for text in encode(self._session.greeting()):
            outbox.put(text)

    @contextmanager
    def listening(self, outbox: Outbox, most: int) -> Generator[None]:
        """Put every event of the session into ``outbox`` too, while the block lasts. Raises Closed beyond so many."""
        if len(self.resumable.others) >= most:
            message = f"{most} sockets listen to this call already, as many as may."
            raise Closed("too_many_sidebands", message, 429)
        self.resumable.others.add(outbox)
        try:
            yield
        finally:
            self.resumable.others.discard(outbox)

    async def over(self) -> None:
        """Wait for the end of the call."""
        await self._over.wait()

    def _emit(self, event: ServerEvent) -> None:
        if isinstance(event, AudioDelta):
            self.peer.track.push(event.pcm)
            return
        self.resumable.emit(event)

    def _set_delay(self, delay_s: float) -> None:
        self.peer.player_s = delay_s

    async def _carry(self, peer: PeerConnection) -> None:
        """Until the connection is over. Raises Leave if that is the call's end, too."""
        leave = await peer.carry()
        if not self.resumable.keeps:
            raise leave
        self.resumable.detach(peer.channel)
        await peer.close()

    async def _attach(self, peer: PeerConnection, after: int) -> None:
        """What is told and said goes over this connection from the moment at which it can."""
        missed = self.resumable.missed(after) if await peer.opened() else None
        if missed is None or self.resumable.ended.is_set():
            peer.leave("it came too late")
            return
        for text in missed:
            peer.channel.outbox.put(text)
        last_seen_s, self.peer = self.peer.last_seen_s, peer
        self.resumable.attach(peer.channel, last_seen_s)

    async def _watch_hang_up(self) -> None:
        await self._over.wait()
        raise Disconnect(1000, self._why, "gone")

    async def _end_with_session(self) -> None:
        await self.resumable.ended.wait()
        leave = self.resumable.leave
        raise Disconnect(leave.code, leave.reason, leave.how)
