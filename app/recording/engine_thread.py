"""The engine of a replay: it runs in a thread with a loop of its own, in real time."""

from __future__ import annotations

import asyncio
import dataclasses
import selectors
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from app.recording.virtual_loop import CountingLoop
from engine import Chunks, Engine, EngineError, EngineSpec, ModelInfo, Output, Request

PATIENCE_S = 60.0
"""Seconds without a heartbeat after which a worker counts as lost. Workers in this process stop while a model loads."""


def in_process(spec: EngineSpec) -> EngineSpec:
    """Return a deployment whose workers run in this process if they can, so that every replay has the same steps."""
    if spec.cluster.listen is not None or any(worker.python or worker.resources for worker in spec.workers):
        return spec
    heartbeat = dataclasses.replace(spec.heartbeat, timeout_s=PATIENCE_S)
    return dataclasses.replace(spec, launcher="inline", heartbeat=heartbeat)


class EngineThread:
    """A started engine in a thread. ``wake`` is called in that thread whenever the engine has nothing left to do."""

    def __init__(self, spec: EngineSpec, wake: Callable[[], None]) -> None:
        self._spec = spec
        self._wake = wake
        self._loop = _WatchedLoop(self._rest)
        self._sent = 0
        self._received = 0
        self._rested_at = -1
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._engine: Engine | None = None
        self._thread = threading.Thread(target=self._run, name="engine")

    @property
    def model(self) -> ModelInfo:
        return self._running.model

    @property
    def idle(self) -> bool:
        """Whether the engine has handled everything that was sent to it, and has nothing left to do."""
        return self._rested_at == self._sent

    @contextmanager
    def running(self) -> Generator[None]:
        """Run the engine while the block lasts. Raises EngineError if it does not start."""
        self._thread.start()
        try:
            self._ready.wait()
            if self._failure is not None:
                raise self._failure
            yield
        finally:
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def send(self, work: Callable[..., object], *args: Any) -> None:
        """Call ``work`` in the engine's loop."""
        self._sent += 1
        self._loop.call_soon_threadsafe(self._receive, work, args)

    def start(self, call: ThreadedRequest) -> None:
        """Begin a request. Call it in the engine's loop."""
        call.task = task = self._loop.create_task(call.run(self._running))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    @property
    def _running(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _receive(self, work: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._received += 1
        work(*args)

    def _rest(self) -> None:
        if self._rested_at != self._received:
            self._rested_at = self._received
            self._wake()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised where the engine was started
            self._failure = error
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        async with Engine(self._spec) as engine:
            self._engine = engine
            self._ready.set()
            await self._stop.wait()
            for call in tuple(self._calls):
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)


class ThreadedRequest:
    """One request in the engine's loop. ``give`` receives each chunk there, and at the end None or an EngineError."""

    def __init__(self, request: Request, live: bool, give: Callable[[Output | EngineError | None], object]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._request = request
        self._live = live
        self._give = give
        self._inputs: asyncio.Queue[Any] = asyncio.Queue()
        self._chunks: Chunks | None = None
        self._reports: list[tuple[str, tuple[Any, ...]]] = []

    async def run(self, engine: Engine) -> None:
        """Read the answer as fast as the engine makes it."""
        try:
            async with engine.open(self._request, self._read_inputs() if self._live else None) as chunks:
                self._chunks = chunks
                for name, args in self._reports:
                    getattr(chunks, name)(*args)
                async for chunk in chunks:
                    self._give(chunk)
        except EngineError as error:
            self._give(error)
        else:
            self._give(None)

    def put(self, chunk: Any) -> None:
        """Add a chunk of the user's turn; None ends it."""
        self._inputs.put_nowait(chunk)

    def report(self, name: str, *args: Any) -> None:
        """Pass on a report of the playback."""
        if self._chunks is None:
            self._reports.append((name, args))
        else:
            getattr(self._chunks, name)(*args)

    def cancel(self) -> None:
        """Abort the request. May be called at any time."""
        if self.task is not None:
            self.task.cancel()

    async def _read_inputs(self) -> AsyncGenerator[Any]:
        while (chunk := await self._inputs.get()) is not None:
            yield chunk


class _WatchedLoop(CountingLoop):
    """A loop that calls ``rest`` before it waits."""

    def __init__(self, rest: Callable[[], None]) -> None:
        super().__init__(_WatchedSelector(lambda: None if self.executing else rest()))


class _WatchedSelector(selectors.DefaultSelector):
    def __init__(self, rest: Callable[[], None]) -> None:
        super().__init__()
        self._rest = rest

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            return super().select(0)
        ready = super().select(0)
        if not ready:
            self._rest()
        return ready or super().select(timeout)
