"""Special tokens of Qwen3-Omni."""

from __future__ import annotations

from dataclasses import dataclass

from engine.worker.omni import special_tokens


@dataclass(frozen=True, slots=True)
class Qwen3SpecialTokens(special_tokens.SpecialTokens):
    """Adds the tokens of turns, and of the talker's text padding, begin and end."""

    turn: int
    user: int
    pad: int
    begin: int
    end: int
