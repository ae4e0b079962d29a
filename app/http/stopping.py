"""The end of an answer because of what it says: before the first of the strings that a client named.

Sans-I/O: chunks in, those that may leave out. Knows no API's shapes and no engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from engine import Audio, Codes, Output, Text, ToolCall, ToolCallDelta, Transcript, Usage


class Stops:
    """Cuts one answer. What may turn out to lie behind its end is held back: text that could be the beginning of a stop
    string, and the sound of it. ``ended`` says whether one was found.

    Sound ends with the last whole word of the text that is left, to the frame.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._text = ""
        self._known = 0  # characters that have left
        self.ended = False
        self._spoken = 0  # characters up to which sound may leave
        self._held: deque[Audio] = deque()
        self._samples = self._reached = 0  # samples that have left, and the characters of the text that they speak
        self._cut: int | None = None  # the sample at which the sound ends

    def over(self, speaks: bool) -> bool:
        """Whether the answer was stopped, and all that is left of it has been given out; its sound too, if it
        ``speaks``."""
        sounded = self._reached >= self._spoken and (self._cut is None or self._samples >= self._cut)
        return self.ended and (sounded or not speaks)

    def feed(self, chunk: Output) -> list[Output]:
        """Return what may leave now."""
        if not self._strings:
            return [chunk]
        match chunk:
            case Text(text):
                return [*self._said(text), *self._released()]
            case Usage():  # the text is complete
                return [*self._rest(), *self._released(), chunk]
            case Audio():
                self._held.append(chunk)
                return self._released()
            case Transcript() | ToolCallDelta() | ToolCall() | Codes():
                return [] if self.ended else [chunk]
            case _:
                assert_never(chunk)

    def end(self) -> list[Output]:
        """Return what is still held, once the answer has ended by itself."""
        return [*self._rest(), *self._released(), *self._held]

    def _said(self, words: str) -> list[Output]:
        if self.ended:
            return []
        self._text += words
        found = [(at + len(one), at) for one in self._strings if (at := self._text.find(one, self._known)) >= 0]
        if found:  # the one that is whole first, so that it does not matter how the text is cut
            whole = self._text
            self._text = self._text[: min(found)[1]]
            self.ended = True
            self._spoken = _last_word_end(whole, len(self._text))
            return self._leave(len(self._text))
        return self._leave(len(self._text) - self._beginning())

    def _beginning(self) -> int:
        """Return how many characters at the end of the text may be the beginning of a stop string."""
        longest = max(map(len, self._strings)) - 1
        sizes = range(min(longest, len(self._text) - self._known), 0, -1)
        return next((n for n in sizes if any(one.startswith(self._text[-n:]) for one in self._strings)), 0)

    def _rest(self) -> list[Output]:
        return [] if self.ended else self._leave(len(self._text))

    def _leave(self, end: int) -> list[Output]:
        piece = Text(self._text[self._known : end], self._known)
        self._known = end
        if not self.ended:
            self._spoken = end
        return [piece] if piece.text else []

    def _released(self) -> list[Output]:
        """The held sound that may leave: all of what is known to be said, cut at the end of the answer."""
        free: list[Output] = []
        while self._held and (self.ended or self._held[0].text_end <= self._spoken):
            chunk = self._held.popleft()
            if self.ended and self._cut is None:
                self._cut = self._samples if self._reached >= self._spoken else self._end_in(chunk)
            self._reached = chunk.text_end
            wave = chunk.wave if self._cut is None else chunk.wave[: max(0, self._cut - self._samples)]
            self._samples += len(wave)
            if len(wave):
                free.append(Audio(wave, chunk.marks))
        return free

    def _end_in(self, chunk: Audio) -> int | None:
        """The sample of the first mark in a chunk that reaches the end; None if none does."""
        return next((sample for sample, characters in chunk.marks if characters >= self._spoken), None)


def _last_word_end(text: str, end: int) -> int:
    """Return where the last word ends of which nothing lies behind ``end``."""
    if end < len(text) and text[end].isalnum():
        while end and text[end - 1].isalnum():
            end -= 1
    return len(text[:end].rstrip())
