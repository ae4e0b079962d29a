"""Run one HTTP answer on the engine: admission, a slot and usage figures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import assert_never

from app.http.live import ClientGone
from app.http.stopping import Stops
from app.responses.figures import Figures
from app.service import Service
from app.telemetry import audit
from app.tracing import answer_trace
from engine import (
    SPEAKER_RATE_HZ,
    Audio,
    Chunks,
    Codes,
    Output,
    Request,
    Text,
    ToolCall,
    ToolCallDelta,
    Transcript,
    Usage,
)

Take = Callable[[Output], Awaitable[None]]


async def answer(service: Service, model: str, request: Request, take: Take, stop: Sequence[str] = ()) -> Figures:
    """Run a model's request to its end, or up to one of the ``stop`` strings, and pass each chunk to ``take``.

    Raises Closed, EngineError and any error of ``take``. Cancelling this aborts the request.
    """
    with admitted(service, model, request.id) as figures:
        await run(service, model, request, take, figures, stop)
    return figures


@contextmanager
def admitted(service: Service, model: str, id: str) -> Generator[Figures]:
    """Admit one HTTP answer of a model while the block lasts, and yield its figures. Raises Closed.

    The answer counts once in the metrics, even if it takes several requests.
    """
    figures, outcome = Figures(), "failed"
    left = (asyncio.CancelledError, ClientGone)
    with service.admission.admit_answer(), answer_trace(service.tracing, id, model, figures, left):
        try:
            yield figures
            outcome = "completed"
        except left:
            outcome = "cancelled"
            raise
        finally:
            audio_s = figures.samples / SPEAKER_RATE_HZ
            if figures.requests:
                service.metrics.answers.labels(outcome).inc()
                audit("http.answered", answer=id, status=outcome, characters=figures.characters, audio_s=audio_s)


async def run(
    service: Service,
    model: str,
    request: Request,
    take: Take,
    total: Figures,
    stop: Sequence[str] = (),
    patient: bool = False,
) -> None:
    """Run one request of an admitted answer, and add its figures to ``total``.

    A ``patient`` request waits for its slot without a time limit.
    """
    figures, stops = Figures(requests=1), Stops(stop)
    async with service.admission.place(request, patient, model) as context:
        try:
            async with context.engine.open(request) as chunks:
                try:
                    await _read(chunks, stops, figures, take, request.speaks)
                finally:
                    figures.stages = chunks.stage_times()
            figures.audio_tokens = round(figures.samples / SPEAKER_RATE_HZ / context.engine.model.frame_s)
            if stops.ended:
                figures.stopped(request, context.engine.model.cost)
        finally:
            total.add(figures)


async def _read(chunks: Chunks, stops: Stops, figures: Figures, take: Take, speaks: bool) -> None:
    async for whole in chunks:
        for chunk in stops.feed(whole):
            await _give(chunk, chunks, figures, take)
        if stops.over(speaks):
            break
    for chunk in stops.end():
        await _give(chunk, chunks, figures, take)


async def _give(chunk: Output, chunks: Chunks, figures: Figures, take: Take) -> None:
    """Pass a chunk on, and update the figures."""
    match chunk:
        case Audio(wave):
            if not figures.samples:
                chunks.played()
                figures.ledger = chunks.ledger
            figures.samples += len(wave)
        case Text(text):
            figures.characters += len(text)
        case Usage():
            figures.count(chunk)
        case Transcript() | ToolCallDelta() | ToolCall() | Codes():
            pass
        case _:
            assert_never(chunk)
    await take(chunk)
