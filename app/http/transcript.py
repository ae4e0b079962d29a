"""A transcript in the API's formats: JSON, plain text and subtitles (SRT, WebVTT).

If the ASR model reports word times, the transcript has words, and one segment or subtitle per sentence. Otherwise it
has one segment, from the start to the end of speech. Source: openai-python ``types/audio``.
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

_CHUNK = 512  # samples per step of the voice activity detector
_VOICE = 0.5
"""Speech probability from which a step counts as speech: the protocol's default."""


@dataclass(frozen=True, slots=True)
class SpeechSpan:
    """The part of a recording with speech, in seconds. ``doubt`` is the probability that there is none."""

    start_s: float
    end_s: float
    doubt: float


@dataclass(frozen=True, slots=True)
class TranscriptionResult:
    """The transcript of a recording of ``seconds``.

    ``language`` is a BCP 47 code, or None if the model understands several. ``words`` covers the whole text if the
    model reports word times.
    """

    text: str
    seconds: float
    language: str | None = None
    span: SpeechSpan | None = None
    words: tuple[Word, ...] = ()

    @property
    def usage(self) -> dict[str, Any]:
        return {"type": "duration", "seconds": round(self.seconds, 3)}

    def written(self, format: Format) -> str:
        """Return it as plain text or subtitles."""
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
        """Return the transcript as JSON.

        It has segments unless other granularities are requested, and words if they are requested.
        """
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
        """Return one segment. Whisper's fields without a meaning here are empty or 0, since clients require them."""
        words = cue.text.encode()
        times = {"start": round(cue.start_s, 3), "end": round(cue.end_s, 3), "text": cue.text}
        figures = {
            "avg_logprob": 0.0 if cue.logprob is None else round(cue.logprob, 4),
            "compression_ratio": round(len(words) / len(zlib.compress(words)), 3),
            "no_speech_prob": 0.0 if self.span is None else round(self.span.doubt, 3),
        }
        return {"id": n, "seek": 0, **times, "tokens": [], "temperature": 0.0, **figures}


def span_of(pcm: Pcm, vad: Vad) -> SpeechSpan:
    """Return the span from the first to the last speech in a recording, or all of it if no speech is found.

    ``vad`` must be a new detector.
    """
    chunks = (pcm[at : at + _CHUNK] for at in range(0, len(pcm) - _CHUNK + 1, _CHUNK))
    speech = np.array([vad.probability(np.divide(chunk, 32768, dtype=np.float32)) for chunk in chunks])
    spoken = np.flatnonzero(speech >= _VOICE)
    doubt = 1.0 - float(speech.max(initial=0.0))
    if not len(spoken):
        return SpeechSpan(0.0, len(pcm) / MIC_RATE_HZ, doubt)
    return SpeechSpan(float(spoken[0]) * _CHUNK / MIC_RATE_HZ, float(spoken[-1] + 1) * _CHUNK / MIC_RATE_HZ, doubt)


def _clock(seconds: float, mark: str) -> str:
    """Format a time as ``00:00:01,500``, with the format's decimal mark."""
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{mark}{ms % 1000:03}"


def _on_a_line(text: str) -> str:
    """Return the text on one line, and without ``-->``, so that words can't fake a subtitle."""
    return " ".join(text.split()).replace("-->", "->")
