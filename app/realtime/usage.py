"""The tokens that an answer took. Knows no wire format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer; an audio token is one codec frame."""

    input_tokens: int = 0
    text_tokens: int = 0
    audio_tokens: int = 0
    heard_tokens: int = 0
    """Of the input, those of sound; like the next two only where the model's family counts them."""
    seen_tokens: int = 0
    """Of the input, those of pictures."""
    cached_tokens: int = 0
    """Of the input, those that were not computed again."""
