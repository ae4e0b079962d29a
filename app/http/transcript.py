"""A transcript in the formats of the API: JSON, plain text, and subtitles (SRT, WebVTT).

Times are those of the voice in the recording; no model here tells when each word was said, so none is given. Source:
openai-python ``types/audio``. Knows no route and no engine.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.realtime.turns import Vad
from engine import MIC_RATE_HZ
from engine.core import Pcm

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
TIMED: frozenset[Format] = frozenset({"srt", "verbose_json", "vtt"})
MEDIA_TYPES: dict[Format, str] = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}

_CHUNK = 512  # samples: what the detector judges at once
_VOICE = 0.5
"""The probability of speech from which on somebody speaks: the protocol's own default."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where somebody speaks in a recording, in seconds; ``doubt`` is how likely it is that nobody does."""

    start_s: float
    end_s: float
    doubt: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was heard in so many seconds. ``language`` is a BCP 47 code, None where it may be one of several."""

    text: str
    seconds: float
    language: str | None = None
    span: Span | None = None

    @property
    def usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": round(self.seconds, 3)}

    def written(self, format: Format) -> str:
        """As text: the words alone, or subtitles of them."""
        line = " ".join(self.text.split()).replace("-->", "->")
        if format == "text" or self.span is None or not line:
            return {"vtt": "WEBVTT\n", "srt": ""}.get(format, self.text + "\n")
        if format == "vtt":
            return f"WEBVTT\n\n{_clock(self.span.start_s, '.')} --> {_clock(self.span.end_s, '.')}\n{line}\n"
        return f"1\n{_clock(self.span.start_s, ',')} --> {_clock(self.span.end_s, ',')}\n{line}\n"

    def body(self, format: Format) -> dict[str, Any]:
        """As JSON."""
        if format == "json":
            return {"text": self.text, "usage": self.usage}
        about = {"task": "transcribe", "language": self.language, "duration": round(self.seconds, 3)}
        segments = [self._segment(self.span)] if self.span is not None and self.text else []
        return {**about, "text": self.text, "segments": segments, "usage": self.usage}

    def _segment(self, span: Span) -> dict[str, Any]:
        """The one segment. Clients insist on fields of Whisper's that mean nothing here: those are empty or 0."""
        words = self.text.encode()
        times = {"start": round(span.start_s, 3), "end": round(span.end_s, 3), "text": self.text}
        figures = {
            "avg_logprob": 0.0,
            "compression_ratio": round(len(words) / len(zlib.compress(words)), 3),
            "no_speech_prob": round(span.doubt, 3),
        }
        return {"id": 0, "seek": 0, **times, "tokens": [], "temperature": 0.0, **figures}


def span_of(pcm: Pcm, vad: Vad) -> Span:
    """From the first voice in a recording to the last, by a fresh detector; all of it where that finds none."""
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
