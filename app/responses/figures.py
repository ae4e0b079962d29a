"""Usage figures of an answer: tokens, characters, samples, and the parts of the time to first audio."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from engine import Ledger, Request, StageTime, TokenCost, Usage


@dataclass(slots=True)
class Figures:
    """Figures of an answer, complete once it has ended."""

    finish: str = "stop"
    requests: int = 0
    """Requests that received a slot."""
    input_tokens: int = 0
    audio_input_tokens: int = 0
    cached_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    characters: int = 0
    samples: int = 0
    """Samples of the audio that was sent; ``characters`` counts the text."""
    ledger: Ledger | None = None
    stages: tuple[StageTime, ...] = ()
    """When the stages worked, request by request."""

    @property
    def output_tokens(self) -> int:
        return self.text_tokens + self.audio_tokens

    def count(self, usage: Usage) -> None:
        """Add the usage that the LLM reported."""
        self.finish = usage.finish
        self.input_tokens = usage.input_tokens
        self.text_tokens = usage.output_tokens
        self.audio_input_tokens = usage.audio_tokens
        self.cached_tokens = usage.cached_tokens

    def add(self, other: Figures) -> None:
        """Add the next request of the same answer."""
        self.finish = other.finish
        self.ledger = self.ledger or other.ledger
        self.stages += other.stages
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def stopped(self, request: Request, cost: TokenCost) -> None:
        """Record a stop by a stop string. If the LLM was still writing, its token counts are estimated."""
        self.finish = "stop"
        if not self.input_tokens:
            self.input_tokens = round(sum(map(cost.of, request.messages)))
            self.text_tokens = max(1, round(self.characters * cost.character))

    def parley(self) -> dict[str, Any] | None:
        """Return the parts of the time to first audio: an extension of OpenAI's API."""
        if self.ledger is None:
            return None
        terms = {name: round(ms, 3) for name, ms in self.ledger.terms.items()}
        return {"ledger": {"ttfa_ms": round(self.ledger.ttfa_ms, 3), "terms_ms": terms}}


_SUMS = tuple(one.name for one in fields(Figures) if one.default == 0)
