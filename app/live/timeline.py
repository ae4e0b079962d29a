"""The timeline of a Live session's output, in milliseconds from its start, including silence.

Sans-I/O: the clock is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine import SPEAKER_RATE_HZ


class OutputTimeline:
    """The output as one stream of samples. ``now`` returns monotonic seconds; the session starts at the first call.

    A ``filled`` stream receives silence between answers, so its position is the number of samples sent. Otherwise the
    position jumps to the present before the next audio.
    """

    def __init__(self, now: Callable[[], float], filled: bool = True) -> None:
        self._now = now
        self._began_s = now()
        self._filled = filled
        self._samples = 0
        self.over = False
        """Whether the session has ended. Nothing is sent afterwards."""

    @property
    def now_s(self) -> float:
        """Return the seconds since the start."""
        return self._now() - self._began_s

    @property
    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    @property
    def place_s(self) -> float:
        """Return the position of the next sample in seconds."""
        return self._samples / SPEAKER_RATE_HZ

    def last_ms(self, samples: int) -> tuple[int, int]:
        """Return the start and end, in milliseconds, of the last ``samples``.

        Each piece starts where the previous one ends.
        """
        begin = self._samples - samples
        return begin * 1000 // SPEAKER_RATE_HZ, self._samples * 1000 // SPEAKER_RATE_HZ

    @property
    def ahead_s(self) -> float:
        """Return how far the stream is ahead of the clock; negative if it is late."""
        return self.place_s - self.now_s

    def add(self, samples: int) -> tuple[float, float]:
        """Count samples as sent. Returns their start and end in ms."""
        if not self._filled:
            self._samples = max(self._samples, round(self.now_s * SPEAKER_RATE_HZ))
        begin = self._samples
        self._samples = self._samples + samples
        return begin * 1000 / SPEAKER_RATE_HZ, self._samples * 1000 / SPEAKER_RATE_HZ


@dataclass(frozen=True, slots=True)
class TimedText:
    """A text, and when it is heard on the timeline."""

    text: str
    start_ms: int
    end_ms: int


def after(text: str, begun: bool) -> str:
    """Return a fragment, with a leading space if words precede it, since clients concatenate fragments."""
    return f" {text}" if begun and not text[:1].isspace() else text


@dataclass(slots=True)
class LiveTranscript:
    """The words of an answer, each reported when its audio is sent, and not at all if it has no audio.

    ``marks`` are rising pairs: ms of the answer's audio, and the number of characters spoken by then.
    """

    text: str = ""
    marks: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    begun: bool = False
    """Whether earlier answers had words."""
    _told: int = 0  # characters
    _told_ms: float = 0.0  # of the answer's own audio
    _played_ms: float = 0.0
    _base_ms: float | None = None  # where the answer's audio starts, without the silence inside it

    def played(self, begin_ms: float, end_ms: float) -> list[TimedText]:
        """Count the answer's next audio as sent at this position. Returns the words that are spoken with it."""
        self._base_ms = begin_ms - self._played_ms
        self._played_ms += end_ms - begin_ms
        due = [mark for mark in self.marks if mark[0] <= self._played_ms]
        self.marks = self.marks[len(due) :]
        return [one for at_ms, characters in due for one in self._tell(at_ms, self._whole_words(characters))]

    def end(self) -> list[TimedText]:
        """Count all audio as sent. Returns the remaining words, which have no mark."""
        return self._tell(self._played_ms, len(self.text))

    def _whole_words(self, characters: int) -> int:
        """Round down to complete words, since some voices have a mark for each letter."""
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
