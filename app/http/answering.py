"""One answer of the engine over HTTP: whether it can be given, its place, its figures. Knows no API's shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from app.http.live import ClientGone
from app.http.stopping import Stops
from app.service import Service
from app.telemetry import audit
from engine import (
    MIC_RATE_HZ,
    SPEAKER_RATE_HZ,
    Audio,
    AudioPart,
    Chunks,
    Codes,
    ImagePart,
    Ledger,
    Message,
    Output,
    Request,
    Text,
    TextPart,
    TokenCost,
    ToolCall,
    ToolCallDelta,
    ToolCallPart,
    ToolResultPart,
    Transcript,
    Usage,
)

Take = Callable[[Output], Awaitable[None]]


@dataclass(slots=True)
class Figures:
    """Figures of an answer, complete once it has ended."""

    finish: str = "stop"
    requests: int = 0
    """The requests that found a place."""
    input_tokens: int = 0
    audio_input_tokens: int = 0
    cached_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    characters: int = 0
    samples: int = 0
    """The characters of the text, and the samples of its sound, that were handed on."""
    ledger: Ledger | None = None

    @property
    def output_tokens(self) -> int:
        return self.text_tokens + self.audio_tokens

    def count(self, usage: Usage) -> None:
        """Note the thinker's part."""
        self.finish = usage.finish
        self.input_tokens = usage.input_tokens
        self.text_tokens = usage.output_tokens
        self.audio_input_tokens = usage.audio_tokens
        self.cached_tokens = usage.cached_tokens

    def add(self, other: Figures) -> None:
        """Note the next request of the same answer."""
        self.finish = other.finish
        self.ledger = self.ledger or other.ledger
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def stopped(self, request: Request, cost: TokenCost) -> None:
        """The answer ended before a stop string: if the thinker was still writing, its counts are estimated."""
        self.finish = "stop"
        if not self.input_tokens:
            self.input_tokens = round(sum(map(partial(_estimate, cost), request.messages)))
            self.text_tokens = max(1, round(self.characters * cost.character))

    def parley(self) -> dict[str, Any] | None:
        """Return where the time to first audio went: ours, not the API's."""
        if self.ledger is None:
            return None
        terms = {name: round(ms, 3) for name, ms in self.ledger.terms.items()}
        return {"ledger": {"ttfa_ms": round(self.ledger.ttfa_ms, 3), "terms_ms": terms}}


_SUMS = (
    "requests",
    "input_tokens",
    "audio_input_tokens",
    "cached_tokens",
    "text_tokens",
    "audio_tokens",
    "characters",
    "samples",
)


async def answer(service: Service, request: Request, take: Take, stop: Sequence[str] = ()) -> Figures:
    """Run a request to its end, or up to one of the strings in ``stop``, handing every chunk to ``take``.

    Raises Closed, EngineError, and what ``take`` does. Cancelling it is the abort.
    """
    with admitted(service, request.id) as figures:
        await run(service, request, take, figures, stop)
    return figures


@contextmanager
def admitted(service: Service, id: str) -> Generator[Figures]:
    """One answer over HTTP while the block lasts, counted once by its end, however many requests it takes, if it came
    to one: their figures. Raises Closed."""
    figures, outcome = Figures(), "failed"
    with service.admission.admit_answer():
        try:
            yield figures
            outcome = "completed"
        except (asyncio.CancelledError, ClientGone):
            outcome = "cancelled"
            raise
        finally:
            audio_s = figures.samples / SPEAKER_RATE_HZ
            if figures.requests:
                service.metrics.answers.labels(outcome).inc()
                audit("http.answered", answer=id, status=outcome, characters=figures.characters, audio_s=audio_s)


async def run(
    service: Service, request: Request, take: Take, total: Figures, stop: Sequence[str] = (), patient: bool = False
) -> None:
    """Run one request of an answer that is admitted, as ``answer`` does, and note it in ``total``; one that is
    ``patient`` waits for its place for as long as it takes."""
    figures, stops = Figures(requests=1), Stops(stop)
    async with service.admission.place(request, patient) as context:
        try:
            async with context.engine.open(request) as chunks:
                async for whole in chunks:
                    for chunk in stops.feed(whole):
                        await _give(chunk, chunks, figures, take)
                    if stops.over(request.speaks):
                        break
                for chunk in stops.end():
                    await _give(chunk, chunks, figures, take)
            figures.audio_tokens = round(figures.samples / SPEAKER_RATE_HZ / context.engine.model.frame_s)
            if stops.ended:
                figures.stopped(request, context.engine.model.cost)
        finally:
            total.add(figures)


async def _give(chunk: Output, chunks: Chunks, figures: Figures, take: Take) -> None:
    """Hand on a chunk, counted."""
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


def _estimate(cost: TokenCost, message: Message) -> float:
    """Estimate how many tokens of a prompt a message takes."""
    tokens = cost.message
    for part in message.parts:
        match part:
            case TextPart(text):
                tokens += len(text) * (cost.instruction if message.role == "system" else cost.character)
            case AudioPart(pcm) if pcm is not None:
                tokens += len(pcm) / MIC_RATE_HZ * cost.audio_s
            case ImagePart():
                tokens += cost.image
            case ToolCallPart(name, arguments):
                tokens += len(name + arguments) * cost.character
            case ToolResultPart(_, output):
                tokens += len(output) * cost.character
            case _:
                pass
    return tokens
