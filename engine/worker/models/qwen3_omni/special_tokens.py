"""Ids of a checkpoint that have a meaning of their own."""

from __future__ import annotations

from dataclasses import dataclass

from engine.worker.omni import special_tokens


@dataclass(frozen=True, slots=True)
class Qwen3SpecialTokens(special_tokens.SpecialTokens):
    """The ids of turns as well, and how the talker's text begins, ends and goes on."""

    turn: int
    user: int
    pad: int
    begin: int
    end: int
