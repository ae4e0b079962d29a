"""Stop strings: end an answer before the first string that the client named.

Sans-I/O: takes chunks and returns those that may be sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import assert_never

from engine import Audio, Codes, Output, Text, ToolCall, ToolCallDelta, Transcript, Usage


class Stops:
    """Cuts one answer at a stop string. ``ended`` is True once a stop string was found.

    Text that could be the start of a stop string is held back, with its audio. The audio ends after the last complete
    word of the remaining text, to the frame.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._text = ""
        self._known = 0  # characters that were returned
        self.ended = False
        self._spoken = 0  # characters up to which audio may be returned
        self._held: deque[Audio] = deque()
        self._samples = self._reached = 0  # samples that were returned, and the characters of the text that they speak
        self._cut: int | None = None  # the sample at which the audio ends

    def over(self, speaks: bool) -> bool:
        """Return whether a stop string was found and everything before it was returned, including audio if it
        ``speaks``.
        """
        sounded = self._reached >= self._spoken and (self._cut is None or self._samples >= self._cut)
        return self.ended and (sounded or not speaks)

    def feed(self, chunk: Output) -> list[Output]:
        """Return the chunks that may be sent now."""
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
        """Return the chunks still held, after the engine has finished the answer."""
        return [*self._rest(), *self._released(), *self._held]

    def _said(self, words: str) -> list[Output]:
        if self.ended:
            return []
        self._text += words
        found = [(at + len(one), at) for one in self._strings if (at := self._text.find(one, self._known)) >= 0]
        if found:  # the string that is complete first, so that the split into chunks does not matter
            whole = self._text
            self._text = self._text[: min(found)[1]]
            self.ended = True
            self._spoken = _last_word_end(whole, len(self._text))
            return self._leave(len(self._text))
        return self._leave(len(self._text) - self._beginning())

    def _beginning(self) -> int:
        """Return how many characters at the end of the text may be the start of a stop string."""
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
        """Return the held audio whose text was returned, cut at the end of the answer."""
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
        """Return the sample of the first mark in a chunk that reaches the end, or None."""
        return next((sample for sample, characters in chunk.marks if characters >= self._spoken), None)


def _last_word_end(text: str, end: int) -> int:
    """Return the end of the last word that lies completely before ``end``."""
    if end < len(text) and text[end].isalnum():
        while end and text[end - 1].isalnum():
            end -= 1
    return len(text[:end].rstrip())
