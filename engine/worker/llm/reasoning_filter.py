"""Thoughts, told from the answer where a model writes both into its text: ``<think>…</think>`` before the answer.

Only the very beginning of a text can be a thought: a model may well write about ``<think>``. Sans I/O.
"""

from __future__ import annotations

from engine.worker.llm.deltas import ReasoningDelta

_NAMES = ("think", "thinking", "thought", "reasoning")
_OPENINGS = tuple(f"<{name}>" for name in _NAMES)
_CLOSINGS = tuple(f"</{name}>" for name in _NAMES)


class ReasoningFilter:
    """Feed the pieces of a model's text, flush once at the end. How the text is cut makes no difference."""

    def __init__(self) -> None:
        self._held = ""
        self._closing = ""
        """The tag that ends the thought which is being read; empty outside of one."""
        self._thought = False
        self._in_text = False

    def feed(self, piece: str) -> list[str | ReasoningDelta]:
        """Return what is known by now, thoughts and text; a few characters that may be a tag are held back."""
        if self._in_text:
            return [piece] if piece else []
        self._held += piece
        return self._thinking() if self._closing else self._beginning()

    def flush(self) -> list[str | ReasoningDelta]:
        """Return what was held back, at the end of the text."""
        held = self._held
        self._held = ""
        if self._closing:
            return [ReasoningDelta(held)] if held else []
        text = held.lstrip() if self._thought else held  # the blank lines behind a thought are none of the answer
        return [text] if text else []

    def _beginning(self) -> list[str | ReasoningDelta]:
        begun = self._held.lstrip()
        for tag in (*_OPENINGS, *_CLOSINGS):
            if begun.startswith(tag):
                self._held = begun.removeprefix(tag)
                self._thought = True
                if tag in _CLOSINGS:  # the prompt opened the thought, and there is none
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
            return found + self._beginning()  # a second thought may follow
        sure = len(self._held) - _overlap(self._held, self._closing)
        thought = self._held[:sure]
        self._held = self._held[sure:]
        return [ReasoningDelta(thought)] if thought else []


def _overlap(text: str, tag: str) -> int:
    """Return how many of the text's last characters may be the beginning of the tag."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)
