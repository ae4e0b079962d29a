"""The running server: the engine from start to stop, and the parts that all routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from app.access.api_keys import ApiKeys
from app.access.client_secrets import ClientSecrets
from app.access.tls import certificate_of
from app.client_address import own_address
from app.engine_host import STOP_S, EngineHost, MakeEngine, Serving
from app.engine_hosts import EngineHosts, named
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
from app.realtime.input.speaker_encoder import INSTALL, speaker_encoder
from app.realtime.input.turn_detector import Silero
from app.realtime.ports import SpeakerEncoder, Vad
from app.realtime.session_context import SessionContext
from app.realtime.timer_lateness import TimerLatenessEstimator
from app.refusal import Closed
from app.responses.store import ResponseStore
from app.settings import settings_of
from app.telemetry import Metrics, Stats, audit, log
from app.tracing import Tracing
from engine import Deployments, EngineSpec, ModelInfo, ReplicaInfo, Request, describe

FORGET_S = 10.0
"""Seconds between two searches for expired client secrets, whose memory is freed."""


class Service:
    """The parts of one server that its routes and transports share.

    Made before the event loop runs, so that a mistake in the configuration shows at once, as ConfigError. ``others``
    are further deployments; the server's settings are those of ``spec``.
    """

    def __init__(
        self,
        spec: EngineSpec,
        make_engine: MakeEngine | None = None,
        vad: Callable[[], Vad] = Silero,
        others: Sequence[EngineSpec] = (),
    ) -> None:
        self.settings = settings_of(spec.server)
        limits = self.settings.limits
        self.keys = ApiKeys.of_file(self.settings.keys_file, "server.keys_file")
        self.certificate = certificate_of(self.settings)
        self.admin_keys = ApiKeys.of_file(self.settings.admin_key_file, "server.admin_key_file")
        self.metrics_keys = ApiKeys.of_file(self.settings.metrics_key_file, "server.metrics_key_file")
        specs = named((spec, *others)) if others else (spec,)
        self.hosts = EngineHosts(specs, make_engine or Deployments(specs).engine, vad)
        self.budgets = BandwidthLimits(limits)
        quotas = Quotas(limits, lambda: len(self.keys) > 1)
        self.memory = MemoryBudget(int(limits.held_mb * 1e6), quotas)
        self.metrics = Metrics(self._stats, self.replicas, quotas, self.budgets)
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
        self._vad = vad
        self.tracing = Tracing(self.settings.otel, self.settings.name)
        self.end_of_turn = EndOfTurnChoice(self.settings.turns.end_of_turn)
        self.inference = InferenceThread()
        self._echo_canceller = echo_canceller(self.settings.turns.echo_cancellation)
        self.speaker_encoder: SpeakerEncoder | None = speaker_encoder()
        """Tells voices apart; None if its weights are not on this machine."""
        if self.speaker_encoder is None and self.settings.turns.speaker != "any":
            log("speaker.unavailable", hint=INSTALL)

    @property
    def engine_host(self) -> EngineHost:
        """The host of the default deployment."""
        return self.hosts.default

    @property
    def described(self) -> ModelInfo:
        """Return the description of the default model before it is loaded. Raises ConfigError or WeightsError."""
        return describe(self.engine_host.spec)

    def start(self) -> None:
        """Start the engines; the ``state`` of each of ``hosts`` tells when it is warm."""
        self.tracing.start()
        self.decoding.start()
        self.inference.start()
        self.hosts.start()

    async def drain(self) -> None:
        """Admit no more sessions, and wait for the open ones to end, at most about ``server.drain_s``."""
        await self.hosts.drain(self.admission, self.settings.drain_s + STOP_S)

    async def stop(self) -> None:
        """Close the engines, or cancel their start."""
        self.memory.close()
        if self._forgetting is not None:
            self._forgetting.cancel()
        await asyncio.to_thread(self.inference.close)
        if self.facts is not None:
            await asyncio.to_thread(self.facts.close)
        await self.decoding.close()
        await self.hosts.stop()
        await asyncio.to_thread(self.tracing.close)

    def context(
        self,
        caller: Principal | None = None,
        model: str | None = None,
        *,
        while_draining: bool = False,
        while_unavailable: bool = False,
    ) -> SessionContext:
        """Create the context of one session: the parts that all sessions share, and a memory account for ``caller``.

        ``model`` is the name that the client requests; None accepts any deployment that is ready. Raises Closed unless
        its engine is ready. The flags accept a server that drains, or whose engine is unavailable.
        """
        engine = self._engine(model, while_draining, while_unavailable)
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
            speaker_encoder=self.speaker_encoder,
            tool_servers=self.tool_servers,
            memory=None if self.facts is None else MemoryAccess(self.facts, caller or Principal()),
        )

    def with_model(self, context: SessionContext, model: str) -> SessionContext:
        """Return the context with the engine of the model that the client requests. Raises Closed."""
        engine = self._engine(model)
        return replace(context, engine=engine, end_of_turn=self.end_of_turn.model(engine.model))

    def _engine(self, model: str | None, while_draining: bool = False, while_unavailable: bool = False) -> Serving:
        host = self.hosts.of(model)
        state, engine = host.state, host.engine
        accepted = {"ready": True, "draining": while_draining, "unavailable": while_unavailable}
        if engine is None or not accepted.get(state, False):
            self.metrics.sessions_refused.labels(state).inc()
            raise host.closed()
        if _is_full(engine):
            self.metrics.sessions_refused.labels("server_full").inc()
            raise Closed("server_full", f"{engine.model.name} holds no more conversations now; try again later.")
        return engine

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

    def replicas(self) -> list[ReplicaInfo]:
        """Return the state of every replica of every engine. A shared one is listed once."""
        found = [one for engine in self.hosts.engines for one in engine.replicas()]
        return list({(one.stage, one.replica, one.incarnation): one for one in found}.values())

    def _stats(self) -> Stats:
        return {stage: figures for engine in self.hosts.engines for stage, figures in engine.stats().items()}

    def _slots(self, request: Request, model: str | None) -> Mapping[str, int]:
        engine = self.hosts.of(model).engine
        return engine.slots(request) if engine else {}


def _is_full(engine: Serving) -> bool:
    """Return whether a duplex model has no slot for another session: its engine lets no request wait for one."""
    if engine.model.duplex is None:
        return False
    slots, stats = engine.slots(Request(id="", session="", messages=(), live=True)), engine.stats()
    return any(stats[stage]["leased"] >= count for stage, count in slots.items())
