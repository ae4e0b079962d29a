"""The telephone calls of a server. Each is a session that backends with its key may join.

``twilio``, ``audiosocket`` and ``sip`` provide the streams.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from app import strict_json
from app.ids import new_id
from app.limits.fair_scheduler import LoopTimeBudget
from app.limits.lru_table import LruTable
from app.limits.principal import Principal
from app.live import started
from app.realtime.ports import CALL
from app.realtime.protocol import SessionOptions, session_options
from app.realtime.protocol.client_events import CreateResponse, Received
from app.realtime.session_context import SessionContext
from app.refusal import Closed, Refusal
from app.service import Service
from app.transports.connection import Connection
from app.transports.live_calls import opening_of
from app.transports.open_calls import OpenCall, OpenCalls
from app.transports.opening import Opening
from app.transports.resumable_session import ResumableSessions
from app.transports.telephone.call_control import HANG_UP, CallControl
from app.transports.telephone.media_stream import MediaStream
from app.transports.telephone.phone import Phone
from app.transports.telephone.unconfirmed import UnconfirmedCalls, most_unconfirmed
from engine import ConfigError

RESERVE_S = 0.15
"""Seconds of audio with which an answer starts.

They last while the engine makes the first audio of other answers, before it continues with an answer that is two rounds
ahead. With 0.1 s, playback ran dry when ten calls were answered at once.
"""

MOST_STEPS = 1000
"""Maximum number of ended calls whose next step is remembered; an exchange asks at once."""

TURNS = {"input": {"turn_detection": {"type": "semantic_vad"}}}
"""Turn detection for calls without a setting: the same as for our own clients."""


class Telephones:
    """The calls of one server. Create it before the event loop runs. Raises ConfigError for invalid session
    settings.
    """

    def __init__(self, service: Service, open_calls: OpenCalls) -> None:
        self._service = service
        self._open_calls = open_calls
        self._settings = service.settings.telephone
        self._sessions = ResumableSessions(service.settings.name)
        self._steps = LruTable[str, str](MOST_STEPS)
        self._calls = 0
        limits = service.settings.limits
        self._most_calls = max(1, int(limits.sessions * limits.telephones_share))
        self.unconfirmed = UnconfirmedCalls(*most_unconfirmed(service.settings.ice_ports))
        """Calls of all exchanges that are not confirmed yet."""
        if self._settings.key and self._settings.key not in service.keys.names:
            raise ConfigError("server.telephone.key: no key with this name in server.keys_file")
        try:
            _, opening = self._opening(Principal(), self._control())
            session_options(SessionOptions(), opening.settings or {})
        except Refusal as refusal:
            raise ConfigError(f"server.telephone.session: {refusal}") from None

    async def serve(self, stream: MediaStream) -> None:
        """Serve a call to its end. Raises Closed if there is no room, and Refusal.

        The stream is closed only if the call was served.
        """
        caller, control = Principal(self._settings.key), self._control()
        id, opening = self._opening(caller, control)
        with self._place(caller, opening.asked_model) as context:
            context = replace(context, loop_time=stream.loop_time)
            phone = Phone(stream, self._service, control, opening.dialect)
            lateness = self._service.lateness
            profile = replace(opening.profile, lead_s=stream.lead_s, reserve_s=RESERVE_S, lateness=lateness)
            opening = replace(opening, profile=profile)
            connection = Connection(self._service, self._sessions, context, phone.channel, opening)
            connection.resumable.on_event = phone.follow
            with self._open_calls.add(OpenCall(id, opening, phone.inbox, connection)):
                if self._settings.greeting is not None:
                    greeting = CreateResponse({"instructions": self._settings.greeting})
                    phone.inbox.put(Received(greeting), len(self._settings.greeting))
                await connection.run("call", call=id, stream=stream.name)
        if control.step is not None:
            self._steps[stream.name] = control.step

    def check_room(self) -> None:
        """Raise Closed if a call could not be served now. Reserves nothing."""
        self._service.context(model=str(self._settings.session.get("model") or ""))
        if self._service.admission.full or self._calls >= self._most_calls:
            self._service.metrics.sessions_refused.labels("server_full").inc()
            raise Closed("server_full", f"{self._calls} telephone calls are active; try again later.")

    def budget(self, address: str) -> LoopTimeBudget:
        """Return the budget of one call: its share of the event loop's time, and its rate limiter.

        All calls of an exchange come from one address, so each has a share of its own.
        """
        key = self._settings.key
        return self._service.loop_time(Principal(key), self._service.pace(Principal(key, address=address)))

    @contextmanager
    def _place(self, caller: Principal, model: str) -> Generator[SessionContext]:
        """Hold a session of the telephones' share while the block lasts. Raises Closed."""
        self.check_room()
        admission = self._service.admission
        with admission.share("calls", caller), admission.admit(caller, model=model) as context:
            self._calls += 1
            try:
                yield context
            finally:
                self._calls -= 1

    def next_step(self, name: str) -> str:
        """Return the next step of an exchange's call: HANG_UP, or the number of a destination."""
        step = self._steps.get(name, HANG_UP)
        return str(self._settings.destinations.get(step, HANG_UP))

    def _control(self) -> CallControl:
        return CallControl(self._settings.hang_up, self._settings.destinations)

    def _opening(self, caller: Principal, control: CallControl) -> tuple[str, Opening]:
        """Return a call's id and opening, with the call's own functions among its tools. Raises Refusal."""
        server = self._service.settings.name
        if self._settings.protocol == "live":
            engine = self._service.engine_host.engine
            session = {"model": engine.model.name if engine else "", **self._settings.session}
            id, config = new_id("live", server), started(session, media=True, own_tools=tuple(control.tools))
            opening = opening_of(caller, config, id)
            return id, replace(opening, settings=strict_json.merged({"audio": TURNS}, config.patch()))
        session = strict_json.merged({"audio": TURNS}, dict(self._settings.session))
        tools = session.get("tools", [])
        settings = {**session, "tools": [*tools, *control.tools] if isinstance(tools, list) else tools}
        return new_id("rtc", server), Opening(caller, settings=settings, profile=CALL)
