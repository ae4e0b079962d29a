"""The life of a session over its client's channels, from opening the first to closing the last.

One task group contains the session, its channel, and the watches that end it when its time is over, the server drains
or its key is withdrawn. The first to end ends the others. The session outlives a channel for a while only if the client
enabled resuming (``resumable_session``). A new transport is a ``Transport`` in a ``Channel``.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

from app.realtime.duplex_session import session_of
from app.realtime.protocol.server_events import ErrorEvent
from app.realtime.session_context import SessionContext
from app.refusal import ServerFault
from app.service import Service
from app.telemetry import audit
from app.tracing import SessionTrace
from app.transports.channel import Channel
from app.transports.disconnect import TRY_LATER, Disconnect, first, watch, while_valid
from app.transports.opening import Opening
from app.transports.recorded_session import SessionRecording
from app.transports.resumable_session import ResumableSession, ResumableSessions
from engine.aio.task_group import CycleFreeTaskGroup, weak_method


class Connection:
    """A new session over ``channel``. ``sessions`` are the server's resumable sessions.

    Raises Refusal if the initial settings are invalid.
    """

    def __init__(
        self, service: Service, sessions: ResumableSessions, context: SessionContext, channel: Channel, opening: Opening
    ) -> None:
        context = replace(context, idle=opening.idle)
        self._recording = SessionRecording(service, context, channel, opening) if opening.record else None
        self.resumable = resumable = ResumableSession(channel, opening.caller)
        self._service = service
        self._sessions = sessions
        self._now = context.now
        self._channel = channel
        profile = replace(
            opening.profile,
            new_resume_token=lambda: sessions.issue(resumable),
            unsent_s=lambda: resumable.unsent_s,
            ahead_s=lambda: resumable.ahead_s,
        )
        if resumable.sound is not None:
            profile = replace(profile, lag_s=self._lag_s, set_delay=self._set_delay)
        self._asked_model = opening.model
        self._trace = SessionTrace(service.tracing, context.engine.model.name)
        emit = self._trace.tapped(resumable.emit)
        self._received = resumable.received
        if (recording := self._recording) is not None:
            context = recording.context
            profile = recording.tapped(profile)
            emit = recording.recorded(emit)
            self._received = lambda: recording.received(resumable.received())
            resumable.on_detached = recording.end
        self.session = session_of(context, emit, opening.model, opening.settings, profile)
        resumable.away = weak_method(self.session.away)
        resumable.back = weak_method(self.session.back)
        self._hung_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, kind: str = "session", **names: str) -> None:
        """Serve the client until it leaves for good or the session ends. ``kind`` and ``names`` are for the log."""
        if self._recording is None:
            await self._serve(kind, names)
            return
        try:
            async with self._recording.running():
                await self._serve(kind, names)
        except ServerFault as fault:
            self._channel.put(ErrorEvent(fault, None))
            await self._channel.say_goodbye(Disconnect(TRY_LATER, "the session can't be recorded", "goodbye"))

    def hang_up(self, why: str) -> None:
        """End the session. May be called twice."""
        if not self._hung_up.done():
            self._hung_up.set_result(why)

    async def _serve(self, kind: str, names: dict[str, str]) -> None:
        resumable, session, why, begun_s = self.resumable, self.session, Disconnect(), self._now()
        names = {**names, "session": session.id}
        audit(f"{kind}.opened", **names, client=resumable.maker.address)
        self._trace.begin(session.id, kind, self._asked_model)
        try:
            async with CycleFreeTaskGroup() as tasks, aclosing(self._received()) as received:
                tasks.create_task(resumable.carry(self._channel), name=f"carry:{session.id}")
                tasks.create_task(watch(session, self._end, self._service), name=f"watch:{session.id}")
                tasks.create_task(while_valid(self._end, resumable.maker), name=f"key:{session.id}")
                tasks.create_task(self._end_when_hung_up(), name=f"hang-up:{session.id}")
                await session.run(received)
                raise Disconnect(1000, "the client closed the session", "goodbye") if session.closed else Disconnect()
        except* Disconnect as disconnects:
            why = first(disconnects)
        finally:
            self._sessions.forget(resumable)
            resumable.end(why)
            self._trace.end(why.code, why.reason)
        lasted_s = self._now() - begun_s
        audit(f"{kind}.closed", **names, code=why.code, reason=why.reason, lasted_s=lasted_s)
        await self._channel.say_goodbye(Disconnect() if self._channel.over.is_set() else why)

    def _end(self, code: str, message: str) -> None:
        """End the session, and its recording before that: a replay has no time limit and no keys."""
        if self._recording is not None:
            self._recording.end()
        self.session.end(code, message)

    async def _end_when_hung_up(self) -> None:
        raise Disconnect(1000, await self._hung_up, "goodbye")

    def _lag_s(self) -> float:
        return 0.0 if self.resumable.sound is None else self.resumable.sound.lag_s

    def _set_delay(self, delay_s: float) -> None:
        if self.resumable.sound is not None:
            self.resumable.sound.delay_s = delay_s
