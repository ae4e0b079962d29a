"""A transcript in the formats of the API: JSON, plain text, and subtitles (SRT, WebVTT).

Where ears tell when each word was said, there are words, and a segment or a subtitle for a sentence. With others there
is one segment: from where the voice begins in the recording to where it ends. Source: openai-python ``types/audio``.
Knows no route and no engine.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.http.cues import Cue, cues
from app.realtime.ports import Vad
from engine import MIC_RATE_HZ, Word
from engine.core import Pcm

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["segment", "word"]
TIMED: frozenset[Format] = frozenset({"srt", "verbose_json", "vtt"})
MEDIA_TYPES: dict[Format, str] = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}

_CHUNK = 512  # samples that the detector judges at once
_VOICE = 0.5
"""The probability of speech from which on somebody speaks: the protocol's own default."""


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a recording where somebody speaks, in seconds; ``doubt`` is how likely it is that nobody does."""

    start_s: float
    end_s: float
    doubt: float


@dataclass(frozen=True, slots=True)
class TranscriptionResult:
    """The words that were heard in so many seconds. ``language`` is a BCP 47 code, None where it may be one of several;
    ``words`` are all that the text has, where the ears give times."""

    text: str
    seconds: float
    language: str | None = None
    span: Span | None = None
    words: tuple[Word, ...] = ()

    @property
    def usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": round(self.seconds, 3)}

    def written(self, format: Format) -> str:
        """Return it as text: the words alone, or subtitles of them."""
        if format == "text":
            return self.text + "\n"
        mark = "." if format == "vtt" else ","
        blocks = [
            f"{_clock(cue.start_s, mark)} --> {_clock(cue.end_s, mark)}\n{_on_a_line(cue.text)}\n"
            for cue in self._cues()
        ]
        if format == "vtt":
            return "\n".join(["WEBVTT\n", *blocks])
        return "\n".join(f"{n}\n{block}" for n, block in enumerate(blocks, 1))

    def body(self, format: Format, granularities: tuple[Granularity, ...] = ()) -> dict[str, Any]:
        """Return it as JSON. Segments are there where nothing is asked for, too; words where they are asked for."""
        if format == "json":
            return {"text": self.text, "usage": self.usage}
        body: dict[str, Any] = {
            "task": "transcribe",
            "language": self.language,
            "duration": round(self.seconds, 3),
            "text": self.text,
        }
        if "segment" in granularities or not granularities:
            body["segments"] = [self._segment(n, cue) for n, cue in enumerate(self._cues())]
        if "word" in granularities:
            body["words"] = [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in self.words]
        return {**body, "usage": self.usage}

    def _cues(self) -> list[Cue]:
        if self.words or self.span is None or not self.text.strip():
            return cues(self.text, self.words)
        return [Cue(self.span.start_s, self.span.end_s, self.text)]

    def _segment(self, n: int, cue: Cue) -> dict[str, Any]:
        """One of them. Clients insist on fields of Whisper's that mean nothing here: those are empty or 0."""
        words = cue.text.encode()
        times = {"start": round(cue.start_s, 3), "end": round(cue.end_s, 3), "text": cue.text}
        figures = {
            "avg_logprob": 0.0 if cue.logprob is None else round(cue.logprob, 4),
            "compression_ratio": round(len(words) / len(zlib.compress(words)), 3),
            "no_speech_prob": 0.0 if self.span is None else round(self.span.doubt, 3),
        }
        return {"id": n, "seek": 0, **times, "tokens": [], "temperature": 0.0, **figures}


def span_of(pcm: Pcm, vad: Vad) -> Span:
    """Return the span from the first voice in a recording to the last, by a fresh detector; all of it where that finds
    none."""
    chunks = (pcm[at : at + _CHUNK] for at in range(0, len(pcm) - _CHUNK + 1, _CHUNK))
    speech = np.array([vad.probability(np.divide(chunk, 32768, dtype=np.float32)) for chunk in chunks])
    spoken = np.flatnonzero(speech >= _VOICE)
    doubt = 1.0 - float(speech.max(initial=0.0))
    if not len(spoken):
        return Span(0.0, len(pcm) / MIC_RATE_HZ, doubt)
    return Span(float(spoken[0]) * _CHUNK / MIC_RATE_HZ, float(spoken[-1] + 1) * _CHUNK / MIC_RATE_HZ, doubt)


def _clock(seconds: float, mark: str) -> str:
    """``00:00:01,500``, with the decimal mark of the format."""
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"


def _on_a_line(text: str) -> str:
    """Words can fake no subtitle."""
    return " ".join(text.split()).replace("-->", "->")
