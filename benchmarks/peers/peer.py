"""Messages to and from a peer: one JSON line each, so that it may be another process."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The model to load: a deployment's model without its workers."""

    model: str
    weights: str | None
    threads: int = 1
    slots: int = 16
    options: dict[str, Any] = {}


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """``count`` simultaneous greedy answers to a text, limited to ``tokens`` tokens and ``frames`` codec frames."""

    text: str
    tokens: int
    frames: int
    count: int = 1


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the question to each answer's first audio and to the end of all, and the frames of one answer."""

    first_s: tuple[float, ...]
    whole_s: float
    frames: int


class Peer(Protocol):
    """An implementation, created from a Subject."""

    def answer(self, question: Question) -> Times: ...
