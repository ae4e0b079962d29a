"""Taps that record what enters and leaves a session: its client's dialect, its engine and its end-of-turn model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec

from app.realtime.inference_thread import InferenceThread
from app.realtime.ports import EndOfTurnModel, EnginePort
from app.realtime.protocol import Received, ServerEvent
from app.realtime.protocol.dialect import Dialect, Ended
from app.realtime.session_context import SessionContext
from app.recording.writer import RecordingWriter
from engine import Audio, ModelInfo, Output, Request, Transcript
from engine.core import Pcm


def tapped(context: SessionContext, writer: RecordingWriter) -> SessionContext:
    """Return the context of a session whose engine, end-of-turn model and measurements are recorded."""

    def measured(name: str, value: float) -> float:
        writer.add("turn", {"type": "measured", "name": name, "value": value})
        return value

    return replace(
        context,
        measured=measured,
        engine=RecordedEngine(context.engine, writer),
        inference=RecordedInference(context.inference, writer),
    )


class RecordedDialect:
    """A dialect that records each message of the client as the session takes it, and each message of the server."""

    def __init__(self, dialect: Dialect, writer: RecordingWriter) -> None:
        self._dialect = dialect
        self._writer = writer

    def decode(self, text: str) -> Received:
        self._writer.add("out", text)
        return self._dialect.decode(text)

    def encode(self, event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
        texts = self._dialect.encode(event, numbers)
        for text in texts:
            self._writer.add("in", text)
        return texts

    def reflect_input(self, pcm: Pcm) -> str | None:
        return self._dialect.reflect_input(pcm)

    def reflect_output(self, pcm: bytes) -> str | None:
        return self._dialect.reflect_output(pcm)

    def farewell(self, ended: Ended) -> list[str]:
        return self._dialect.farewell(ended)


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
    """The server's thread of end-of-turn models, whose results are recorded when they become known."""

    def __init__(self, thread: InferenceThread, writer: RecordingWriter) -> None:
        super().__init__()
        self._inner = thread
        self._writer = writer
        self._numbers = count(1)

    def submit(self, model: EndOfTurnModel, pcm: Pcm) -> Future[float]:
        number = next(self._numbers)
        judged = self._inner.submit(model, pcm)
        judged.add_done_callback(lambda done: self._add(number, done))
        return judged

    def warm_up(self, model: EndOfTurnModel) -> None:
        self._inner.warm_up(model)

    def warn(self, reason: str) -> None:
        self._inner.warn(reason)

    def _add(self, number: int, judged: Future[float]) -> None:
        known = not judged.cancelled() and judged.exception() is None
        probability = judged.result() if known else None
        self._writer.add("turn", {"type": "judged", "pause": number, "probability": probability})
