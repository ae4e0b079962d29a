"""Where an answer ends because of what it says: before the first of the strings that a client named.

Sans-I/O: chunks in, those that may leave out. Knows no API's shapes and no engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from engine import Chunk


class Stops:
    """Cuts one answer. What may turn out to lie behind its end is held back: text that could be the beginning of a stop
    string, and the sound of it. ``frame_samples`` is the length of a codec frame. ``ended`` says whether one was found.

    Sound ends with the last whole word of the text that is left, to the frame.
    """

    def __init__(self, strings: Sequence[str], frame_samples: float) -> None:
        self._strings, self._frame_samples = tuple(strings), frame_samples
        self._text = ""
        self._known = 0  # characters that have left
        self.ended = False
        self._spoken = 0  # characters up to which sound may leave
        self._held: deque[Chunk] = deque()
        self._samples = self._reached = 0  # of the sound that has left, and how much of the text it speaks
        self._cut: int | None = None  # the sample at which the sound ends

    def over(self, speaks: bool) -> bool:
        """Whether the answer was stopped, and all that is left of it has been given out; its sound too, if it
        ``speaks``."""
        heard = self._reached >= self._spoken and (self._cut is None or self._samples >= self._cut)
        return self.ended and (heard or not speaks)

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """What may leave now."""
        if not self._strings:
            return [chunk]
        match chunk.kind:
            case "text":
                return [*self._said(chunk.data), *self._released()]
            case "usage":  # the text is complete
                return [*self._rest(), *self._released(), chunk]
            case "audio":
                self._held.append(chunk)
                return self._released()
            case _:
                return [] if self.ended else [chunk]

    def end(self) -> list[Chunk]:
        """What is still held, once the answer has ended by itself."""
        return [*self._rest(), *self._released(), *self._held]

    def _said(self, words: str) -> list[Chunk]:
        if self.ended:
            return []
        self._text += words
        found = [(at + len(one), at) for one in self._strings if (at := self._text.find(one, self._known)) >= 0]
        if found:  # the one that is whole first, so that it does not matter how the text is cut
            whole, self._text, self.ended = self._text, self._text[: min(found)[1]], True
            self._spoken = _last_word_end(whole, len(self._text))
            return self._leave(len(self._text))
        return self._leave(len(self._text) - self._beginning())

    def _beginning(self) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        longest = max(map(len, self._strings)) - 1
        sizes = range(min(longest, len(self._text) - self._known), 0, -1)
        return next((n for n in sizes if any(one.startswith(self._text[-n:]) for one in self._strings)), 0)

    def _rest(self) -> list[Chunk]:
        return [] if self.ended else self._leave(len(self._text))

    def _leave(self, end: int) -> list[Chunk]:
        piece, self._known = self._text[self._known : end], end
        if not self.ended:
            self._spoken = end
        return [Chunk("text", piece, {"ids": []})] if piece else []

    def _released(self) -> list[Chunk]:
        """The held sound that may leave: all of what is known to be said, cut at the end of the answer."""
        free: list[Chunk] = []
        while self._held and (self.ended or self._held[0].meta.get("text_end", 0) <= self._spoken):
            chunk = self._held.popleft()
            if self.ended and self._cut is None:
                self._cut = self._samples if self._reached >= self._spoken else self._end_in(chunk)
            self._reached = chunk.meta.get("text_end", 0)
            wave = chunk.data if self._cut is None else chunk.data[: max(0, self._cut - self._samples)]
            self._samples += len(wave)
            if len(wave):
                free.append(Chunk("audio", wave, chunk.meta))
        return free

    def _end_in(self, chunk: Chunk) -> int | None:
        """The sample behind the first frame of a chunk that reaches the end; None if none does."""
        ends = chunk.meta.get("text_ends")
        if ends is None:
            return self._samples + len(chunk.data) if chunk.meta.get("text_end", 0) >= self._spoken else None
        first = int(chunk.meta.get("frame", 0))
        reached = next((n for n, end in enumerate(ends, first + 1) if end >= self._spoken), None)
        return None if reached is None else round(reached * self._frame_samples)


def _last_word_end(text: str, end: int) -> int:
    """Where the last word ends of which nothing lies behind ``end``."""
    if end < len(text) and text[end].isalnum():
        while end and text[end - 1].isalnum():
            end -= 1
    return len(text[:end].rstrip())
