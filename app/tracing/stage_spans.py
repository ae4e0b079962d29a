"""Spans of the stages of one answer, and their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine import StageTime

if TYPE_CHECKING:
    from app.tracing.span import Attributes, Span

PROVIDER = {"gen_ai.provider.name": "parley"}
OPERATIONS = {"asr": "transcription", "llm": "chat", "tts": "speech"}
"""The operation of each kind of stage. The conventions define only ``chat``."""


def add_stages(
    parent: Span, stages: Sequence[StageTime], about: Attributes, usage: Mapping[str, int], ended_s: float
) -> None:
    """Add a span for each stage. ``about`` describes the answer; a stage that it interrupted ends at ``ended_s``.

    The token counts belong to the language model. Without one, the answer itself has them.
    """
    if not any(stage.work == "llm" for stage in stages):
        parent.set(usage)
    for stage in stages:
        used = usage if stage.work == "llm" else {}
        span = parent.child(f"{stage.work} {stage.name}", {**about, **_attributes(stage), **used}, stage.begun_s)
        if stage.first_s is not None:
            span.event("first_output", {}, stage.first_s)
        span.end(ended_s if stage.ended_s is None else stage.ended_s)


def _attributes(stage: StageTime) -> Attributes:
    known: dict[str, str | float] = {
        **PROVIDER,
        "gen_ai.operation.name": OPERATIONS[stage.work],
        "gen_ai.output.type": "speech" if stage.work == "tts" else "text",
        "parley.stage": stage.name,
    }
    if stage.first_s is not None:
        known["gen_ai.response.time_to_first_chunk"] = stage.first_s - stage.begun_s
    return known


def ledger_attributes(ttfa_ms: float | None, terms: Mapping[str, float] | None) -> dict[str, float]:
    """Return the time to first audio and its parts, in seconds."""
    if ttfa_ms is None:
        return {}
    parts = {f"parley.ledger.{name}": ms / 1000 for name, ms in (terms or {}).items()}
    return {"parley.time_to_first_audio": ttfa_ms / 1000, **parts}


def token_attributes(
    input_tokens: int, text_tokens: int, audio_tokens: int, cached_tokens: int, audio_input_tokens: int
) -> dict[str, int]:
    """Return the token counts of an answer."""
    return {
        "gen_ai.usage.input_tokens": input_tokens,
        "gen_ai.usage.output_tokens": text_tokens + audio_tokens,
        "gen_ai.usage.text.output_tokens": text_tokens,
        "gen_ai.usage.audio.output_tokens": audio_tokens,
        "gen_ai.usage.audio.input_tokens": audio_input_tokens,
        "gen_ai.usage.cache_read.input_tokens": cached_tokens,
    }
