"""The running server: the engine from start to stop, and the parts that all routes share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Literal, Protocol, get_args

from app.access.api_keys import ApiKeys
from app.access.client_secrets import ClientSecrets
from app.access.tls import certificate_of
from app.client_address import own_address
from app.facts import FactStore, MemoryAccess
from app.limits.admission import Admission
from app.limits.auth_throttle import AuthThrottle
from app.limits.bandwidth import BandwidthLimits
from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.memory_budget import HeldKind, MemoryBudget, MemoryReservation
from app.limits.principal import Principal, Secret
from app.limits.quotas import Quotas
from app.limits.rate_limiter import RateLimiter
from app.mcp import ToolServers
from app.media.decoding import Decoding
from app.realtime.inference_thread import InferenceThread
from app.realtime.input.echo_canceller import echo_canceller
from app.realtime.input.end_of_turn_choice import EndOfTurnChoice
from app.realtime.input.turn_detector import Silero
from app.realtime.ports import EnginePort, Vad
from app.realtime.session_context import SessionContext
from app.realtime.timer_lateness import TimerLatenessEstimator
from app.refusal import Closed
from app.responses.store import ResponseStore
from app.settings import settings_of
from app.telemetry import Metrics, Stats, audit, log, log_failure
from app.tracing import Tracing
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
"""Seconds that the engine may take to close its workers. They close in parallel, each within 2 s."""
FORGET_S = 10.0
"""Seconds between two searches for expired client secrets, whose memory is freed."""

State = Literal["starting", "ready", "unavailable", "draining", "failed"]
"""``unavailable``: the engine was ready, but one of its stages has no live replica now."""


class Serving(EnginePort, Protocol):
    """A started engine, as far as the server uses it."""

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


class EngineHost:
    """Owns the engine in one task, from start to stop, and knows the server's state."""

    def __init__(self, spec: EngineSpec, make_engine: MakeEngine, load_vad: Callable[[], object]) -> None:
        self.engine: Serving | None = None
        """None until the engine is warm, and after it has stopped."""
        self.failure: EngineError | None = None
        self.draining = asyncio.Event()
        """Set once the server admits no more sessions."""
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None
        self._spec = spec
        self._make_engine = make_engine
        self._load_vad = load_vad
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        if self.draining.is_set():
            return "draining"
        if self.failure is not None:
            return "failed"
        if self.engine is None:
            return "starting"
        return "ready" if self.engine.ready else "unavailable"

    def start(self) -> None:
        """Begin to start the engine. ``state`` becomes ``ready`` once it is warm."""
        self._task = asyncio.create_task(self._serve(), name="service")

    async def stop(self) -> None:
        """Close the engine, or cancel its start."""
        if self._task is None:
            return
        self._stop.set()
        if self.engine is None:
            self._task.cancel()
        _, late = await asyncio.wait([self._task], timeout=STOP_S)
        if late:
            log("engine.stop_late", after_s=STOP_S)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1.0)

    def fail(self, error: EngineError) -> None:
        """End the server, because it cannot do what its configuration says."""
        self.failure = error
        log("engine.failed", code=error.code)
        self.on_failure()

    async def drain(self, admission: Admission[SessionContext], within_s: float) -> None:
        """Admit no more sessions, and wait until the open ones and the answers over HTTP have ended."""
        self.draining.set()
        log("server.draining", sessions=admission.sessions, answers=admission.answers)
        try:
            async with asyncio.timeout(within_s):
                await admission.wait_until_empty()
        except TimeoutError:
            log("server.drain_late", sessions=admission.sessions, answers=admission.answers)

    async def _serve(self) -> None:
        begun_s = time.monotonic()
        try:
            async with self._make_engine(self._spec) as engine:
                await asyncio.to_thread(self._load_vad)  # loads its network once, outside the event loop
                self.engine = engine
                log("server.ready", model=engine.model.name, start_s=time.monotonic() - begun_s)
                self.on_ready()
                await self._stop.wait()
                self.engine = None
        except EngineError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - any failure to start must end the server, not leave it waiting
            log_failure("engine.bug")
            self.fail(EngineError(f"the engine failed to start: {error}"))


class Service:
    """The parts of one server that its routes and transports share.

    Made before the event loop runs, so that a mistake in the configuration shows at once, as ConfigError.
    """

    def __init__(self, spec: EngineSpec, make_engine: MakeEngine = Engine, vad: Callable[[], Vad] = Silero) -> None:
        self.settings = settings_of(spec.server)
        limits = self.settings.limits
        self.keys = ApiKeys.of_file(self.settings.keys_file, "server.keys_file")
        self.certificate = certificate_of(self.settings)
        self.admin_keys = ApiKeys.of_file(self.settings.admin_key_file, "server.admin_key_file")
        self.metrics_keys = ApiKeys.of_file(self.settings.metrics_key_file, "server.metrics_key_file")
        self.engine_host = EngineHost(spec, make_engine, vad)
        self.budgets = BandwidthLimits(limits)
        quotas = Quotas(limits, lambda: len(self.keys) > 1)
        self.memory = MemoryBudget(int(limits.held_mb * 1e6), quotas)
        self.metrics = Metrics(self._stats, self._replicas, quotas, self.budgets)
        self.admission = Admission(limits, self.metrics, quotas, self.context, self._slots)
        self.secrets = ClientSecrets(limits.secrets, quotas=quotas, server=self.settings.name, memory=self.memory)
        self.kept = ResponseStore(limits, self.settings.name, self.memory)
        self.tool_servers = ToolServers(self.settings.mcp)
        self.facts = FactStore(self.settings.memory) if self.settings.memory.path is not None else None
        self.throttle = AuthThrottle()
        self.decoding = Decoding()
        self.scheduler = FairScheduler()
        self.lateness = TimerLatenessEstimator()
        self.own_address = own_address(self.settings.trusted_proxies)
        self.keys.withdrawn = self._withdraw_key
        for kind in get_args(HeldKind):
            self.metrics.held_bytes.labels(kind).set_function(partial(self.memory.held_of, kind))
        self.metrics.kept.set_function(lambda: len(self.kept))
        self.metrics.kept_bytes.set_function(lambda: self.kept.held)
        self._forgetting: asyncio.TimerHandle | None = None
        self.spec = spec
        self._vad = vad
        self.tracing = Tracing(self.settings.otel, self.settings.name)
        self.end_of_turn = EndOfTurnChoice(self.settings.turns.end_of_turn)
        self.inference = InferenceThread()
        self._echo_canceller = echo_canceller(self.settings.turns.echo_cancellation)

    @property
    def described(self) -> ModelInfo:
        """Return the description of the configured model before it is loaded. Raises ConfigError or WeightsError."""
        return describe(self.spec)

    def start(self) -> None:
        """Start the engine; ``engine_host.state`` tells when it is warm."""
        self.tracing.start()
        self.decoding.start()
        self.inference.start()
        self.engine_host.start()

    async def drain(self) -> None:
        """Admit no more sessions, and wait for the open ones to end, at most about ``server.drain_s``."""
        await self.engine_host.drain(self.admission, self.settings.drain_s + STOP_S)

    async def stop(self) -> None:
        """Close the engine, or cancel its start."""
        self.memory.close()
        if self._forgetting is not None:
            self._forgetting.cancel()
        await asyncio.to_thread(self.inference.close)
        if self.facts is not None:
            await asyncio.to_thread(self.facts.close)
        await self.decoding.close()
        await self.engine_host.stop()
        await asyncio.to_thread(self.tracing.close)

    def context(
        self, caller: Principal | None = None, *, while_draining: bool = False, while_unavailable: bool = False
    ) -> SessionContext:
        """Create the context of one session: the parts that all sessions share, and a memory account for ``caller``.

        Raises Closed unless the engine is ready. The flags accept a server that drains, or whose engine is unavailable.
        """
        state, engine = self.engine_host.state, self.engine_host.engine
        accepted = {"ready": True, "draining": while_draining, "unavailable": while_unavailable}
        if engine is None or not accepted.get(state, False):
            self.metrics.sessions_refused.labels(state).inc()
            if state == "unavailable" and engine is not None:
                missing = ", ".join(engine.missing)
                raise Closed(state, f"No worker runs {missing} now; lost workers restart. Try again in a few seconds.")
            raise Closed(state, f"The server is {state}; try again later.")
        settings = self.settings
        return SessionContext(
            engine,
            self.metrics,
            settings.limits,
            settings.turns,
            self._vad,
            self.end_of_turn.model(engine.model),
            settings.camera_every_s,
            settings.summarize_at,
            settings.instructions,
            echo_canceller=self._echo_canceller,
            loop_time=self.loop_time(caller or Principal()),
            room=MemoryReservation(self.memory, caller),
            decoding=self.decoding,
            end_of_turn_models=self.end_of_turn.models,
            inference=self.inference,
            tool_servers=self.tool_servers,
            memory=None if self.facts is None else MemoryAccess(self.facts, caller or Principal()),
        )

    def pace(self, caller: Principal | None = None) -> RateLimiter:
        """Return the rate limiter of one client. A connection's caller is known only after its first request."""
        limits = self.settings.limits
        pace = RateLimiter(limits.messages_s, limits.received_mb_s * 1e6)
        if caller is not None:
            self.budgets.charge(pace, caller)
        return pace

    def loop_time(self, caller: Principal, pace: RateLimiter | None = None) -> LoopTimeBudget:
        """Return the caller's share of the event loop's time. A socket's caller has one already."""
        return caller.loop_time or LoopTimeBudget(self.scheduler, caller.address, pace)

    def issue_secret(self, session: dict[str, Any], lifetime_s: float, maker: Principal) -> Secret:
        """Issue a client secret. Raises like ``ClientSecrets.issue``."""
        secret = self.secrets.issue(session, lifetime_s, maker)
        audit("client_secret.issued", lifetime_s=lifetime_s)
        if self._forgetting is None:
            self._forget_secrets()
        return secret

    def withdraw_secrets(self, caller: Principal, value: str | None) -> int:
        """End one client secret of the caller, or all of them, and the sessions opened with them. Returns the count."""
        gone = self.secrets.withdraw(caller, value)
        self.admission.quotas.withdraw(lambda one: one.secret in gone)
        audit("client_secret.withdrawn", count=len(gone))
        return len(gone)

    def _forget_secrets(self) -> None:
        """Free the memory of expired client secrets every FORGET_S seconds, until no secret is left."""
        self.secrets.forget()
        later = asyncio.get_running_loop().call_later
        self._forgetting = later(FORGET_S, self._forget_secrets) if len(self.secrets) else None

    def _withdraw_key(self, owner: str) -> None:
        """End everything that belongs to a key that was removed from its file."""
        self.secrets.withdraw(Principal(owner))
        self.kept.withdraw(owner)
        self.admission.quotas.withdraw(lambda one: one.owner == owner)

    def _stats(self) -> Stats:
        engine = self.engine_host.engine
        return engine.stats() if engine else {}

    def _replicas(self) -> Sequence[ReplicaInfo]:
        engine = self.engine_host.engine
        return engine.replicas() if engine else ()

    def _slots(self, request: Request) -> Mapping[str, int]:
        engine = self.engine_host.engine
        return engine.slots(request) if engine else {}
