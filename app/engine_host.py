"""The engine of one deployment from start to stop, and its state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Literal, Protocol

from app.realtime.ports import EnginePort
from app.refusal import Closed
from app.telemetry import Stats, log, log_failure
from engine import ConfigError, EngineError, EngineSpec, ReplicaInfo, Request
from engine.aio.back_off import back_off_s
from engine.errors import without_places

STOP_S = 5.0
"""Seconds that the engine may take to close its workers. They close in parallel, each within 2 s."""
FIRST_RETRY_S = 0.5
"""Delay before the second attempt to start a deployment. Each further delay is twice as long, as for lost workers."""
LAST_RETRY_S = 30.0

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
    """Owns the engine of a deployment in one task, from start to stop, and knows its state.

    One of several deployments that could not be started is tried again, unless its configuration is invalid.
    ``name`` is the deployment's name, or "" for the only one of its server. ``draining`` is set once the server admits
    no more sessions.
    """

    def __init__(
        self,
        spec: EngineSpec,
        make_engine: MakeEngine,
        load_vad: Callable[[], object],
        draining: asyncio.Event,
        name: str = "",
    ) -> None:
        self.spec = spec
        self.name = name
        self.engine: Serving | None = None
        """None until the engine is warm, and after it has stopped."""
        self.failure: EngineError | None = None
        """The reason why the last attempt to start failed."""
        self.on_settled: Callable[[], None] = lambda: None
        """Called when the engine is warm or has failed."""
        self._draining = draining
        self._make_engine = make_engine
        self._load_vad = load_vad
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        if self._draining.is_set():
            return "draining"
        if self.failure is not None:
            return "failed"
        if self.engine is None:
            return "starting"
        return "ready" if self.engine.ready else "unavailable"

    @property
    def settled(self) -> bool:
        """Whether the engine is warm or has failed."""
        return self.engine is not None or self.failure is not None

    @property
    def usable(self) -> bool:
        """Whether it is ready, and so are the external servers of its stages."""
        return self.state == "ready" and self.engine is not None and not self.engine.unavailable

    def closed(self) -> Closed:
        """Return the refusal of a caller while the state is not ``ready``."""
        if self.state == "unavailable" and self.engine is not None:
            missing = ", ".join(self.engine.missing)
            return Closed(
                self.state, f"No worker runs {missing} now; lost workers restart. Try again in a few seconds."
            )
        if self.name and self.failure is not None:
            return Closed(self.state, f"The model {self.name!r} could not be started: {self.failure.public}")
        what = f"The model {self.name!r}" if self.name else "The server"
        return Closed(self.state, f"{what} is {self.state}; try again later.")

    def health(self) -> dict[str, object]:
        """Return the facts for ``/health`` that are not ``status``: what is missing, and why it failed."""
        facts: dict[str, object] = {}
        if self.name and self.failure is not None:
            facts["error"] = self.failure.public
        if self.engine and self.engine.missing:
            facts["missing"] = ", ".join(self.engine.missing)  # stages without a replica; lost ones are restarting
        if self.engine and self.engine.unavailable:
            # stages whose external server is down, with the reason
            reasons = self.engine.unavailable.items()
            facts["unavailable"] = {stage: without_places(reason) for stage, reason in reasons}
        return facts

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
        """Report that the deployment cannot do what its configuration says."""
        is_known = str(error) == str(self.failure)
        self.failure = error
        if is_known:
            return
        about = {"model": self.name, "error": error} if self.name else {}  # the command prints an only one's error
        log("engine.failed", code=error.code, **about)
        self.on_settled()

    async def _serve(self) -> None:
        for retry in count():
            await self._attempt()
            if self._stop.is_set() or not self.name or isinstance(self.failure, ConfigError):
                return
            await asyncio.sleep(back_off_s(retry, FIRST_RETRY_S, LAST_RETRY_S))

    async def _attempt(self) -> None:
        """Start the engine, and serve until the stop. Return earlier if it fails."""
        begun_s = time.monotonic()
        try:
            async with self._make_engine(self.spec) as engine:
                await asyncio.to_thread(self._load_vad)  # loads its network once, outside the event loop
                self.engine = engine
                self.failure = None
                log("server.ready", model=engine.model.name, start_s=time.monotonic() - begun_s)
                self.on_settled()
                await self._stop.wait()
                self.engine = None
        except EngineError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - any failure to start must be reported, not leave clients waiting
            log_failure("engine.bug")
            self.fail(EngineError(f"the engine failed to start: {error}"))
