"""The questions to a peer and its answers: one JSON line each, so that it may be another process."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The model to be loaded: a deployment's, without its workers."""

    model: str
    weights: str | None
    threads: int = 1
    slots: int = 16
    options: dict[str, Any] = {}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` greedy answers to a text, asked at the same moment, of at most so many tokens and codec frames."""

    text: str
    tokens: int
    frames: int
    count: int = 1


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the question to each answer's first sound, and to the end of all; ``frames`` that one has."""

    first_s: tuple[float, ...]
    whole_s: float
    frames: int


class Peer(Protocol):
    """Made from a Subject; answers as often as it is asked."""

    def answer(self, question: Question) -> Times: ...
