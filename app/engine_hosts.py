"""The deployments of one server. A client selects one by its name; the first one serves all other names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from app.engine_host import EngineHost, MakeEngine, Serving
from app.limits.admission import Admission
from app.realtime.session_context import SessionContext
from app.telemetry import log
from engine import ConfigError, EngineError, EngineSpec, describe

URL_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")
"""The names of several deployments: RFC 3986's unreserved characters."""


def named(specs: Sequence[EngineSpec]) -> tuple[EngineSpec, ...]:
    """Return several deployments with the names by which clients select them. Raises ConfigError."""
    names: list[str] = []
    for spec in specs:
        name = spec.name or _model_of(spec)
        if URL_SAFE.fullmatch(name) is None:
            raise ConfigError(
                f"name: {name[:80]!r} can't be part of a URL. Set a `name` of at most 64 letters, digits, '-', '_', "
                "'.' and '~' in this configuration, since the server has several"
            )
        if name in names:
            raise ConfigError(f"name: two configurations are called {name!r}. Set a different `name` in one of them")
        names.append(name)
    return tuple(replace(spec, name=name) for spec, name in zip(specs, names, strict=True))


def _model_of(spec: EngineSpec) -> str:
    """Return the name of a deployment's model, as far as it can be described."""
    try:
        return describe(spec).name
    except EngineError:  # its start reports this
        return spec.title


class EngineHosts:
    """The engine hosts of one server. Each starts, fails, retries and stops independently of the others."""

    def __init__(self, specs: Sequence[EngineSpec], make_engine: MakeEngine, load_vad: Callable[[], object]) -> None:
        self.draining = asyncio.Event()
        """Set once the server admits no more sessions."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called once every deployment is ready or has failed, if at least one is ready."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called once every deployment has failed."""
        self.failure: EngineError | None = None
        """The first deployment's error, once every deployment has failed."""
        self._is_announced = False
        several = len(specs) > 1
        self.all = tuple(
            EngineHost(spec, make_engine, load_vad, self.draining, str(spec.name) if several else "") for spec in specs
        )
        for host in self.all:
            host.on_settled = self._settled

    @property
    def default(self) -> EngineHost:
        """The deployment of clients that name no model, or an unknown one."""
        return self.all[0]

    @property
    def engines(self) -> Iterator[Serving]:
        """The engines that run."""
        return (host.engine for host in self.all if host.engine is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that clients may select."""
        return tuple(host.name or (host.engine.model.name if host.engine else host.spec.title) for host in self.all)

    def of(self, model: str | None) -> EngineHost:
        """Return the host for a requested model. None stands for any one, preferably one that is ready."""
        if model is None:
            return next((host for host in self.all if host.state == "ready"), self.default)
        return next((host for host in self.all if host.name == model), self.default)

    def start(self) -> None:
        """Begin to start all engines."""
        for host in self.all:
            host.start()

    async def drain(self, admission: Admission[SessionContext], within_s: float) -> None:
        """Admit no more sessions, and wait until the open ones and the answers over HTTP have ended."""
        self.draining.set()
        log("server.draining", sessions=admission.sessions, answers=admission.answers)
        try:
            async with asyncio.timeout(within_s):
                await admission.wait_until_empty()
        except TimeoutError:
            log("server.drain_late", sessions=admission.sessions, answers=admission.answers)

    async def stop(self) -> None:
        """Close all engines, or cancel their start."""
        async with asyncio.TaskGroup() as stopping:
            for host in self.all:
                stopping.create_task(host.stop(), name="stop:engine")

    def fail(self, error: EngineError) -> None:
        """End the server, because it cannot do what its configuration says."""
        for host in self.all:
            host.fail(error)

    def _settled(self) -> None:
        if all(host.failure for host in self.all):
            self.failure = self.default.failure
            self.on_failure()
        elif not self._is_announced and all(host.settled for host in self.all):
            self._is_announced = True
            self.on_ready()
