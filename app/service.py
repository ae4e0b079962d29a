"""The running server: the engine's life from start to drain, and who may open a session meanwhile.

Knows no route and no wire format. One task owns the engine; ``stop`` ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Literal, Protocol

from app.budgets import Budgets
from app.callers import Caller
from app.decoding import Decoding
from app.kept import Kept
from app.keys import Keys
from app.lateness import Lateness
from app.mcp import ToolServers
from app.memory import Memory, Room
from app.pace import Pace
from app.places import Places
from app.proxies import own_address
from app.realtime.input.endpointing import Sentences
from app.realtime.input.turn_detector import Silero
from app.realtime.ports import EnginePort, Vad
from app.realtime.session_context import SessionContext
from app.secrets import Secrets
from app.settings import settings_of
from app.shares import Kind, Shares, ShareTaken
from app.slices import LoopTime, Slices
from app.telemetry import Metrics, Stats, audit, log, log_failure
from app.throttle import Throttle
from app.tls import certificate_of
from app.waiting import LineFull, Waiter, Waiting
from engine import (
    Engine,
    EngineError,
    EngineSpec,
    ModelInfo,
    ReplicaInfo,
    Request,
    describe,
)

STOP_S = 5.0
"""Seconds that the engine may take to close its workers: they get 2 s each, all at once."""

State = Literal["starting", "ready", "unavailable", "draining", "failed"]
"""``unavailable``: it was ready, but a stage of the engine has no live replica now."""


class Serving(EnginePort, Protocol):
    """A started engine, as far as the server sees it."""

    @property
    def ready(self) -> bool: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    @property
    def unavailable(self) -> Mapping[str, str]: ...

    def stats(self) -> Stats: ...

    def slots(self, request: Request) -> Mapping[str, int]: ...

    def replicas(self) -> Sequence[ReplicaInfo]: ...

    async def scale(self, stage: str, count: int) -> None: ...

    async def restart(self) -> None: ...


MakeEngine = Callable[[EngineSpec], AbstractAsyncContextManager[Serving]]


class Closed(Exception):
    """No session can be opened now; ``code`` says why. ``status`` is HTTP's: 429 where the caller has had its share."""

    def __init__(self, code: str, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class Service:
    """Made before the event loop runs: a mistake in the configuration shows at once, as ConfigError."""

    def __init__(self, spec: EngineSpec, make_engine: MakeEngine = Engine, vad: Callable[[], Vad] = Silero) -> None:
        self.settings = settings_of(spec.server)
        self.keys = Keys.of_file(self.settings.keys_file, "server.keys_file")
        self.certificate = certificate_of(self.settings)
        self.admin_keys = Keys.of_file(self.settings.admin_key_file, "server.admin_key_file")
        self.metrics_keys = Keys.of_file(self.settings.metrics_key_file, "server.metrics_key_file")
        self.shares = Shares(self.settings.limits, lambda: len(self.keys) > 1)
        self.budgets = Budgets(self.settings.limits)
        self.memory = Memory(int(self.settings.limits.held_mb * 1e6), self.shares)
        self.secrets = Secrets(self.settings.limits.secrets, shares=self.shares, server=self.settings.name)
        self.kept = Kept(self.settings.limits, self.settings.name)
        self.tool_servers = ToolServers(self.settings.mcp)
        self.keys.withdrawn = self._withdraw_key
        self.throttle = Throttle()
        self.decoding = Decoding()
        self.slices = Slices()
        self.lateness = Lateness()
        self.own_address = own_address(self.settings.trusted_proxies)
        self.metrics = Metrics(
            lambda: self._engine.stats() if self._engine else {},
            lambda: self._engine.replicas() if self._engine else (),
            self.shares,
            self.budgets,
        )
        self.failure: EngineError | None = None
        self.draining = asyncio.Event()
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None
        self._spec = spec
        self._make_engine = make_engine
        self._vad = vad
        self._engine: Serving | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sessions = 0
        self._waiting = Waiting(self.settings.limits.waiting)
        self._answers = 0  # over HTTP, outside any session; those that wait for slots, too
        self._places = Places(self.settings.limits.wait_s, self.settings.limits.answers_share)
        self.metrics.http_waiting.set_function(lambda: self._places.waiting)
        self.metrics.kept.set_function(lambda: len(self.kept))
        self.metrics.kept_bytes.set_function(lambda: self.kept.held)
        self._empty = asyncio.Event()

    @property
    def described(self) -> ModelInfo:
        """Return what the model will say of itself, before it is there. Raises ConfigError or WeightsError."""
        return describe(self._spec)

    @property
    def state(self) -> State:
        if self.draining.is_set():
            return "draining"
        if self.failure is not None:
            return "failed"
        if self._engine is None:
            return "starting"
        return "ready" if self._engine.ready else "unavailable"

    @property
    def engine(self) -> Serving | None:
        """None until it is warm."""
        return self._engine

    def start(self) -> None:
        """Start the engine; ``state`` tells when it is warm."""
        self.decoding.start()
        self._task = asyncio.create_task(self._serve(), name="service")

    async def stop(self) -> None:
        """Close the engine, or give up starting it."""
        self.memory.close()
        await self.decoding.close()
        if self._task is not None:
            self._stop.set()
            if self._engine is None:
                self._task.cancel()
            _, late = await asyncio.wait([self._task], timeout=STOP_S)
            if late:
                log("engine.stop_late", after_s=STOP_S)
                self._task.cancel()
                await asyncio.wait([self._task], timeout=1.0)

    def context(self, caller: Caller | None = None, states: Sequence[State] = ("ready",)) -> SessionContext:
        """Return what every session shares, and its own room. Raises Closed while there is no engine that can
        answer, or the server is in none of these states."""
        if self._engine is None or self.state not in states:
            raise self._refused(self.state, f"The server is {self.state}; try again soon.")
        settings = self.settings
        limits, turns, camera_every_s = settings.limits, settings.turns, settings.camera_every_s
        room = Room(self.memory, caller)
        return SessionContext(
            self._engine,
            self.metrics,
            limits,
            turns,
            self._vad,
            Sentences(),
            camera_every_s,
            loop_time=self.loop_time(caller or Caller()),
            room=room,
            decoding=self.decoding,
            tool_servers=self.tool_servers,
        )

    def pace(self, caller: Caller | None = None) -> Pace:
        """Return the pace of one client; of a connection the caller is known once it has asked for something."""
        limits = self.settings.limits
        pace = Pace(limits.messages_s, limits.received_mb_s * 1e6)
        if caller is not None:
            self.budgets.charge(pace, caller)
        return pace

    def loop_time(self, caller: Caller, pace: Pace | None = None) -> LoopTime:
        """A connection's part of the event loop's time: a socket has its own, at its own pace."""
        return caller.loop_time or LoopTime(self.slices, caller.address, pace)

    @property
    def full(self) -> bool:
        """Whether every session is taken, or kept for one who waited for it."""
        return self._sessions + self._waiting.given >= self.settings.limits.sessions

    @contextmanager
    def waiting(self, moved: Callable[[int], None], caller: Caller | None = None) -> Generator[Waiter]:
        """A place in the line while the block lasts; ``moved`` is told which. Raises Closed."""
        self.context()
        with self.share("waiting", caller or Caller()):
            yield from self._in_line(moved)

    def _in_line(self, moved: Callable[[int], None]) -> Generator[Waiter]:
        try:
            waiter = self._waiting.join(moved)
        except LineFull:
            message = (
                f"All {self._sessions} sessions are taken, and {len(self._waiting)} clients wait; try again later."
            )
            raise self._refused("server_full", message) from None
        try:
            yield waiter
        finally:
            self._waiting.leave(waiter)
            self._call_next()

    def _call_next(self) -> None:
        if not self.full:
            self._waiting.call()

    def _withdraw_key(self, owner: str) -> None:
        """A key is gone from its file: so are its client secrets, what was opened with it or with them, and what is
        kept for it."""
        self.secrets.withdraw(Caller(owner))
        self.kept.withdraw(owner)
        self.shares.withdraw(lambda one: one.owner == owner)

    def withdraw_secrets(self, caller: Caller, value: str | None) -> int:
        """End the caller's client secret of that value, or all of them, and what was opened with them; how many."""
        gone = self.secrets.withdraw(caller, value)
        self.shares.withdraw(lambda one: one.secret in gone)
        audit("client_secret.withdrawn", count=len(gone))
        return len(gone)

    @contextmanager
    def share(self, kind: Kind, caller: Caller) -> Generator[None]:
        """One of the places that this caller may hold, while the block lasts. Raises Closed."""
        with ExitStack() as places:
            try:
                places.enter_context(self.shares.hold(kind, caller))
            except ShareTaken as taken:
                raise self._refused(taken.code, str(taken), 429) from None
            yield

    @contextmanager
    def admit(self, caller: Caller | None = None, waiter: Waiter | None = None) -> Generator[SessionContext]:
        """A place for one session while the block lasts, for one who waited or if there is any. Raises Closed."""
        if waiter is not None:
            self._waiting.leave(waiter)
        context = self.context(caller)
        if self.full:
            raise self._refused("server_full", f"All {self._sessions} sessions are taken; try again later.")
        with self.share("sessions", caller or Caller()):
            yield from self._in_session(context)

    def _in_session(self, context: SessionContext) -> Generator[SessionContext]:
        self._sessions += 1
        self.metrics.sessions.set(self._sessions)
        try:
            yield context
        finally:
            context.room.close()
            self._sessions -= 1
            self.metrics.sessions.set(self._sessions)
            self._call_next()
            self._left()

    @contextmanager
    def admit_answer(self) -> Generator[None]:
        """One of the answers over HTTP while the block lasts, which may end whatever comes meanwhile. Raises Closed."""
        self.context()
        if self._answers >= self.settings.limits.answers:
            raise self._refused("server_full", f"{self._answers} answers are under way; try again later.")
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1
            self._left()

    @asynccontextmanager
    async def place(self, request: Request, patient: bool = False) -> AsyncGenerator[SessionContext]:
        """Slots for one request of such an answer while the block lasts, once there are some for HTTP. Raises Closed,
        for one who is not ``patient`` after ``wait_s``, too."""
        async with AsyncExitStack() as places:
            try:
                await places.enter_async_context(self._places.hold(lambda: self._slots(request), patient))
            except TimeoutError:
                wait_s = self.settings.limits.wait_s
                message = f"No place for an answer over HTTP was free within {wait_s:g} s; try again later."
                raise self._refused("server_full", message) from None
            states: tuple[State, ...] = ("ready", "draining", *(("unavailable",) if patient else ()))
            yield self.context(states=states)

    def _slots(self, request: Request) -> Mapping[str, int]:
        return self._engine.slots(request) if self._engine else {}

    def _left(self) -> None:
        if not self._sessions and not self._answers:
            self._empty.set()

    async def drain(self) -> None:
        """Take no more sessions, and wait until the open ones have ended: each sees ``draining``, and the deadline.

        Answers over HTTP under way may end, too.
        """
        self.draining.set()
        log("server.draining", sessions=self._sessions, answers=self._answers)
        try:
            async with asyncio.timeout(self.settings.drain_s + STOP_S):
                while self._sessions or self._answers:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            log("server.drain_late", sessions=self._sessions, answers=self._answers)

    async def _serve(self) -> None:
        """The engine's owner, from start to stop."""
        begun_s = time.monotonic()
        try:
            async with self._make_engine(self._spec) as engine:
                await asyncio.to_thread(self._vad)  # its network is loaded once, and not in the event loop
                self._engine = engine
                log("server.ready", model=engine.model.name, start_s=time.monotonic() - begun_s)
                self.on_ready()
                await self._stop.wait()
                self._engine = None
        except EngineError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever kept the engine from starting must end the server, not hang it
            log_failure("engine.bug")
            self.fail(EngineError(f"the engine could not be started: {error}"))

    def fail(self, error: EngineError) -> None:
        """End the server, since it can't do what its configuration says."""
        self.failure = error
        log("engine.failed", code=error.code)
        self.on_failure()

    def _refused(self, code: str, message: str, status: int = 503) -> Closed:
        self.metrics.sessions_refused.labels(code).inc()
        return Closed(code, message, status)
