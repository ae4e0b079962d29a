"""Taps that record what a session takes from the server: its engine, end-of-turn model, waits and measurements."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import msgspec

from app.realtime.inference_thread import InferenceThread
from app.realtime.ports import EndOfTurnModel, EnginePort
from app.realtime.session_context import SessionContext
from app.realtime.timer_lateness import TimerLatenessEstimator
from app.realtime.waits import Waits
from app.recording.writer import RecordingWriter
from engine import Audio, ModelInfo, Output, Request, Transcript
from engine.core import Pcm

T = TypeVar("T")

STEP_S = 0.005
"""Accuracy of the recorded lead in seconds."""


def tapped(context: SessionContext, writer: RecordingWriter) -> SessionContext:
    """Return the context of a session whose engine, end-of-turn model, waits and measurements are recorded."""

    def measured(name: str, value: float) -> float:
        writer.add("turn", {"type": "measured", "name": name, "value": value})
        return value

    return replace(
        context,
        measured=measured,
        waits=RecordedWaits(writer, part_names()),
        engine=RecordedEngine(context.engine, writer),
        inference=RecordedInference(context.inference, writer),
    )


class StepClock:
    """A clock that stands still during each step of the event loop, so that a session reads the recorded times."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began_s = now()
        self._us = 0
        self._ticked_us = -1
        self._is_held = False

    def __call__(self) -> float:
        """Return the time in seconds."""
        self._hold()
        return self._began_s + self._us / 1e6

    def tick(self) -> int:
        """Return the microseconds since the clock was created, at least one more than at the last call."""
        self._hold()
        self._us = self._ticked_us = max(self._us, self._ticked_us + 1)
        return self._us

    def _hold(self) -> None:
        if self._is_held:
            return
        self._is_held = True
        self._us = max(self._us, round((self._now() - self._began_s) * 1e6))
        asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        self._is_held = False


class RecordedWaits(Waits):
    """Records the ends of waits. ``names`` are those of the parts."""

    def __init__(self, writer: RecordingWriter, names: Iterator[str]) -> None:
        self._writer = writer
        self._names = names
        self._name = next(names)
        self._numbers = count(1)

    def part(self) -> Waits:
        return RecordedWaits(self._writer, self._names)

    async def result(self, work: Awaitable[T]) -> T:
        """Record the end only if something else was recorded meanwhile."""
        number = next(self._numbers)
        lines = self._writer.lines
        try:
            return await work
        finally:
            if self._writer.lines != lines:
                self._add(number)

    async def moment(self) -> None:
        self._add(next(self._numbers))

    def ended(self, then: Callable[[], None]) -> None:
        self._writer.add("turn", {"type": "waited", "wait": f"{self._name}.end"})
        then()

    async def alarm(self, event: asyncio.Event, delay_s: float | None) -> None:
        number = next(self._numbers)
        await super().alarm(event, delay_s)
        self._add(number)

    def _add(self, number: int) -> None:
        self._writer.add("turn", {"type": "waited", "wait": f"{self._name}.{number}"})


def part_names() -> Iterator[str]:
    """Yield the names of a session's waits: its own, then those of its parts."""
    return map(str, count())


class RecordedLateness(TimerLatenessEstimator):
    """The server's estimator for a recorded session, in steps of 5 ms.

    Records each change of the additional lead, with the number of the reading that first returned it.
    """

    def __init__(self, estimator: TimerLatenessEstimator, writer: RecordingWriter) -> None:
        super().__init__()
        self._estimator = estimator
        self._writer = writer
        self._ahead_s = 0.0
        self._readings = count(1)

    def came(self, late_s: float, now_s: float) -> None:
        self._estimator.came(late_s, now_s)

    def ahead_s(self, now_s: float) -> float:
        reading = next(self._readings)
        ahead_s = math.ceil(self._estimator.ahead_s(now_s) / STEP_S) * STEP_S
        if ahead_s != self._ahead_s:
            self._ahead_s = ahead_s
            self._writer.add("turn", {"type": "ahead", "reading": reading, "value": ahead_s})
        return ahead_s


def kind_of(chunk: Output) -> str:
    """Return the name of a chunk's kind. Final transcripts are a kind of their own."""
    return "Final" if isinstance(chunk, Transcript) and chunk.final else type(chunk).__name__


class RecordedEngine:
    """An engine that records when each chunk of each request was taken.

    Each request that names no seed gets its number as its seed, so that a replay draws the same tokens.
    """

    def __init__(self, engine: EnginePort, writer: RecordingWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._numbers = count(1)

    @property
    def model(self) -> ModelInfo:
        return self._engine.model

    def prepare(self, request: Request) -> None:
        self._engine.prepare(request)

    @asynccontextmanager
    async def open(self, request: Request, inputs: Any = None) -> AsyncGenerator[Any]:
        number = next(self._numbers)
        request = seeded(request, number)
        self._writer.add("engine", {"type": "request", "request": number, "seed": request.sampling.seed})
        try:
            async with self._engine.open(request, inputs) as chunks:
                yield _RecordedChunks(chunks, number, self._writer)
        finally:
            self._writer.add("engine", {"type": "left", "request": number})


def seeded(request: Request, seed: int) -> Request:
    """Return the request with this seed, unless it names one."""
    if request.sampling.seed:
        return request
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, seed=seed))


class _RecordedChunks:
    """The chunks of one request, as a response reads them."""

    def __init__(self, chunks: Any, number: int, writer: RecordingWriter) -> None:
        self._chunks = chunks
        self._number = number
        self._writer = writer

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        try:
            chunk: Output = await anext(self._chunks)
        except StopAsyncIteration:
            self._add("end")
            raise
        except Exception:
            self._add("error")
            raise
        match chunk:
            case Audio(wave):
                self._add("Audio", samples=len(wave))
            case Transcript(final=False):
                self._add("Transcript", interim=msgspec.to_builtins(chunk))
            case _:
                self._add(kind_of(chunk))
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunks, name)  # reports of playback, and the ledger

    def _add(self, kind: str, **details: Any) -> None:
        self._writer.add("engine", {"type": "chunk", "request": self._number, "kind": kind, **details})


class RecordedInference(InferenceThread):
    """The server's inference threads. Each result becomes known in the event loop, where its time is recorded.

    Probabilities are recorded, too; embeddings of voices are not.
    """

    def __init__(self, thread: InferenceThread, writer: RecordingWriter) -> None:
        super().__init__()
        self._inner = thread
        self._writer = writer
        self._numbers = count(1)

    def run(self, work: Callable[[Pcm], T], pcm: Pcm) -> Future[T]:
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        known = Future[T]()
        judged = self._inner.run(work, pcm)
        self._writer.add("turn", {"type": "asked", "pause": number})

        def tell(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(self._tell, number, judged, known)

        judged.add_done_callback(tell)
        known.add_done_callback(lambda _: judged.cancel())
        return known

    def warm_up(self, model: EndOfTurnModel) -> None:
        self._inner.warm_up(model)

    def warn(self, reason: str) -> None:
        self._inner.warn(reason)

    def warn_speaker(self, reason: str) -> None:
        self._inner.warn_speaker(reason)

    def _tell(self, number: int, judged: Future[T], known: Future[T]) -> None:
        failed = judged.cancelled() or judged.exception() is not None
        result = None if failed else judged.result()
        is_embedding = not failed and not isinstance(result, float)
        shown = {} if is_embedding else {"probability": result}
        self._writer.add("turn", {"type": "judged", "pause": number, **shown})
        if judged.cancelled():
            known.cancel()
        elif known.set_running_or_notify_cancel():
            if (error := judged.exception()) is None:
                known.set_result(judged.result())
            else:
                known.set_exception(error)
