"""One answer of the engine over HTTP: whether it can be given, its place, its figures. Knows no API's shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from app.http.live import ClientGone
from app.service import Service
from app.telemetry import log
from engine import SPEAKER_RATE_HZ, Chunk, Ledger, Request

Take = Callable[[Chunk], Awaitable[None]]


@dataclass(slots=True)
class Figures:
    """What an answer took, complete once it has ended."""

    finish: str = "stop"
    input_tokens: int = 0
    heard_tokens: int = 0
    cached_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    ledger: Ledger | None = None

    @property
    def output_tokens(self) -> int:
        return self.text_tokens + self.audio_tokens

    def count(self, usage: Chunk) -> None:
        """What the thinker says of its part."""
        self.finish = usage.meta.get("finish", "stop")
        self.input_tokens = int(usage.data.get("input_tokens", 0))
        self.heard_tokens = int(usage.data.get("heard_tokens", 0))
        self.cached_tokens = int(usage.data.get("cached_tokens", 0))
        self.text_tokens = int(usage.data.get("output_tokens", 0))

    def parley(self) -> dict[str, Any] | None:
        """Ours, not the API's: where the time to first audio went."""
        if self.ledger is None:
            return None
        terms = {name: round(ms, 3) for name, ms in self.ledger.terms.items()}
        return {"ledger": {"ttfa_ms": round(self.ledger.ttfa_ms, 3), "terms_ms": terms}}


async def answer(service: Service, request: Request, take: Take) -> Figures:
    """Run a request to its end, handing every chunk to ``take``. Raises Closed, EngineError, and what ``take`` does.

    Cancelling it is the abort.
    """
    figures, samples, outcome = Figures(), 0, "failed"
    with service.admit_answer() as house:
        try:
            async with house.engine.open(request) as chunks:
                async for chunk in chunks:
                    if chunk.kind == "audio":
                        if not samples:
                            chunks.played()
                            figures.ledger = chunks.ledger
                        samples += len(chunk.data)
                    elif chunk.kind == "usage":
                        figures.count(chunk)
                    await take(chunk)
            outcome = "completed"
        except (asyncio.CancelledError, ClientGone):
            outcome = "cancelled"
            raise
        finally:
            house.metrics.answers.labels(outcome).inc()
            log("http.answered", request=request.id, status=outcome, audio_s=samples / SPEAKER_RATE_HZ)
        figures.audio_tokens = round(samples / SPEAKER_RATE_HZ / house.engine.model.frame_s)
    return figures
