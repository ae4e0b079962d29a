"""Separates reasoning from the answer in models that write both as text: ``<think>…</think>`` before the answer.

Only tags at the very beginning count, because a model may write about ``<think>``. Does no I/O.
"""

from __future__ import annotations

from engine.worker.llm.deltas import ReasoningDelta

_NAMES = ("think", "thinking", "thought", "reasoning")
_OPENINGS = tuple(f"<{name}>" for name in _NAMES)
_CLOSINGS = tuple(f"</{name}>" for name in _NAMES)


class ReasoningFilter:
    """Feed the pieces of a model's text, then flush. The result does not depend on the pieces."""

    def __init__(self) -> None:
        self._held = ""
        self._closing = ""
        """Closing tag of the current reasoning; empty outside of it."""
        self._thought = False
        self._in_text = False

    def feed(self, piece: str) -> list[str | ReasoningDelta]:
        """Return the reasoning and text that are certain; a possible tag is held back."""
        if self._in_text:
            return [piece] if piece else []
        self._held += piece
        return self._thinking() if self._closing else self._beginning()

    def flush(self) -> list[str | ReasoningDelta]:
        """Return the held-back rest at the end of the text."""
        held = self._held
        self._held = ""
        if self._closing:
            return [ReasoningDelta(held)] if held else []
        text = held.lstrip() if self._thought else held  # blank lines after reasoning do not belong to the answer
        return [text] if text else []

    def _beginning(self) -> list[str | ReasoningDelta]:
        begun = self._held.lstrip()
        for tag in (*_OPENINGS, *_CLOSINGS):
            if begun.startswith(tag):
                self._held = begun.removeprefix(tag)
                self._thought = True
                if tag in _CLOSINGS:  # the prompt opened the reasoning, which is empty
                    return self._beginning()
                self._closing = tag.replace("<", "</")
                return self._thinking()
        if any(tag.startswith(begun) for tag in (*_OPENINGS, *_CLOSINGS)):
            return []
        self._in_text = True
        return self.flush()

    def _thinking(self) -> list[str | ReasoningDelta]:
        thought, closing, rest = self._held.partition(self._closing)
        if closing:
            self._held = rest
            self._closing = ""
            found: list[str | ReasoningDelta] = [ReasoningDelta(thought)] if thought else []
            return found + self._beginning()  # more reasoning may follow
        sure = len(self._held) - _overlap(self._held, self._closing)
        thought = self._held[:sure]
        self._held = self._held[sure:]
        return [ReasoningDelta(thought)] if thought else []


def _overlap(text: str, tag: str) -> int:
    """Return how many trailing characters of the text may be the start of the tag."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)
