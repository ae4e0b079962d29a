"""The timeline of a Live session, in milliseconds from its beginning: what the listener got, silence included.

Sans-I/O: the clock is an argument. Knows no wire format and no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine import SPEAKER_RATE_HZ


class OutputTimeline:
    """The output as one stream of samples. ``now`` is monotonic seconds, at which the session begins.

    A ``filled`` one is sent silence where there is nothing to say, so that its place is what was sent; another one
    jumps to the present before the next sound.
    """

    def __init__(self, now: Callable[[], float], filled: bool = True) -> None:
        self._now = now
        self._began_s = now()
        self._filled = filled
        self._samples = 0
        self.over = False
        """Whether the session has ended: nothing follows."""

    @property
    def now_s(self) -> float:
        """Return the seconds since the beginning."""
        return self._now() - self._began_s

    @property
    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    @property
    def place_s(self) -> float:
        """Return where the next sample will be."""
        return self._samples / SPEAKER_RATE_HZ

    def last_ms(self, samples: int) -> tuple[int, int]:
        """Return where the last so many samples begin and end: a piece begins where the one before it ends."""
        begin = self._samples - samples
        return begin * 1000 // SPEAKER_RATE_HZ, self._samples * 1000 // SPEAKER_RATE_HZ

    @property
    def ahead_s(self) -> float:
        """Return how far the stream is ahead of the clock; less than 0 where it is behind."""
        return self.place_s - self.now_s

    def add(self, samples: int) -> tuple[float, float]:
        """Note that so many samples leave; return where they begin and end, in ms."""
        if not self._filled:
            self._samples = max(self._samples, round(self.now_s * SPEAKER_RATE_HZ))
        begin = self._samples
        self._samples = self._samples + samples
        return begin * 1000 / SPEAKER_RATE_HZ, self._samples * 1000 / SPEAKER_RATE_HZ


@dataclass(frozen=True, slots=True)
class TimedText:
    """Some text, and where on the timeline it is heard."""

    text: str
    start_ms: int
    end_ms: int


def after(text: str, begun: bool) -> str:
    """Fragments are put one behind the other, so one that begins anew brings the blank before it."""
    return f" {text}" if begun and not text[:1].isspace() else text


@dataclass(slots=True)
class LiveTranscript:
    """An answer's words on their way to the listener: each is told with its sound, none before, and none that has none.

    ``marks`` are (ms of the answer's sound, characters that are spoken by then), rising.
    """

    text: str = ""
    marks: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    begun: bool = False
    """Whether there were words before these."""
    _told: int = 0  # characters
    _told_ms: float = 0.0  # of the answer's own sound
    _played_ms: float = 0.0
    _base_ms: float | None = None  # where the answer's sound begins, less the silence within it

    def played(self, begin_ms: float, end_ms: float) -> list[TimedText]:
        """The answer's next sound left, there on the timeline: return the words that are spoken with it."""
        self._base_ms = begin_ms - self._played_ms
        self._played_ms += end_ms - begin_ms
        due = [mark for mark in self.marks if mark[0] <= self._played_ms]
        self.marks = self.marks[len(due) :]
        return [one for at_ms, characters in due for one in self._tell(at_ms, self._whole_words(characters))]

    def end(self) -> list[TimedText]:
        """All of its sound left: return the words that no mark names."""
        return self._tell(self._played_ms, len(self.text))

    def _whole_words(self, characters: int) -> int:
        """The characters without a word that goes on behind them: some voices have a mark for each letter."""
        if characters >= len(self.text) or self.text[characters].isspace():
            return min(characters + 1, len(self.text))
        return self.text.rfind(" ", 0, characters) + 1

    def _tell(self, at_ms: float, characters: int) -> list[TimedText]:
        text, base_ms = self.text[self._told : characters], self._base_ms or 0.0
        if not text:
            return []
        text = after(text, self.begun and not self._told)
        start_ms = self._told_ms
        self._told = characters
        self._told_ms = max(self._told_ms, at_ms)
        return [TimedText(text, round(base_ms + start_ms), round(base_ms + self._told_ms))]
