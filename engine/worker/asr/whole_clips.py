"""Base class of recognizers that transcribe whole clips rather than a stream.

While the user speaks, the growing clip is transcribed repeatedly as long as that is cheap, and once more at its end.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from engine.chunk import Chunk
from engine.core import MIC_RATE_HZ, NO_HINTS, Pcm, SpeechHints, StageInfo
from engine.errors import EngineError, StageFailed
from engine.worker.asr.speech_gate import is_loud, loudness, spoken
from engine.worker.asr.transcribing import pcm_of, transcript
from engine.worker.asr.word_times import NOTHING, WordTimes
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest

LONGEST_S = 29.0
"""Longest clip in seconds. Whisper ignores audio after 30 s, and few models were trained on longer clips."""

SHORTEST_S = 0.1
"""Shortest clip in seconds. Shorter clips contain no word, and some networks reject them."""

FIRST_S = 0.85
"""Length at which a growing clip is first transcribed. A turn starts with 0.3 s of silence, and of less than half a
second of speech a model guesses other words.
"""

EVERY_S = 0.3
"""Seconds of new audio after which a growing clip is transcribed again."""

MOST = 0.25
"""Maximum time for repeated transcription, as a share of the duration of the new audio."""

CUT_FRAME = MIC_RATE_HZ // 5
"""Frame length in samples when searching a long clip for its quietest place to cut."""


@dataclass(slots=True)
class Clip:
    """One user's speech since the last cut."""

    hints: SpeechHints = NO_HINTS
    pieces: list[Pcm] = field(default_factory=list[Pcm])
    samples: int = 0
    decoded_samples: int = 0
    settled: WordTimes = NOTHING
    """Words of earlier parts, which are not transcribed again."""
    settled_samples: int = 0
    latest: WordTimes = NOTHING
    """All words as of the latest transcription."""
    emitted: str = ""
    """Text of the latest partial transcript sent."""

    @property
    def length_s(self) -> float:
        return self.samples / MIC_RATE_HZ

    @property
    def new_s(self) -> float:
        """Seconds of audio that have not been transcribed yet."""
        return (self.samples - self.decoded_samples) / MIC_RATE_HZ

    def take(self, pcm: Pcm) -> None:
        self.pieces.append(pcm)
        self.samples += len(pcm)

    def sound(self) -> Pcm:
        """Return the whole clip as int16 [samples]."""
        self.pieces = [np.concatenate(self.pieces)] if self.pieces else []
        return self.pieces[0] if self.pieces else np.empty(0, np.int16)

    def settle(self, samples: int) -> None:
        """Fix the transcript of the first ``samples``, and remove them from the clip."""
        rest = self.sound()[samples:]
        self.pieces = [rest]
        self.samples = len(rest)
        self.decoded_samples = 0
        self.settled = self.latest
        self.settled_samples = self.settled_samples + samples


class WholeClips(ABC):
    """Base class of stages that transcribe whole clips.

    A subclass implements ``describe`` (usually with ``ears_info``) and ``transcribe``, and loads its model in
    ``__init__``. Clips that are due are transcribed in one batch. A clip longer than ``longest_s`` is transcribed in
    parts, cut at a quiet place.
    """

    longest_s: float = LONGEST_S
    """Longest clip, in seconds, that the model can transcribe at once."""
    invents: bool = False
    """Whether the model writes words for silence and noise. If so, it gets no silent clips, and implausible transcripts
    are dropped: names of noises such as "[MUSIC]", loops, and more words than the clip has time for.
    """

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.info = self.describe(config)
        self._clock = clock
        self._share = 0.0
        """Measured seconds of computing per second of audio."""

    @classmethod
    @abstractmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        """Describe the stage. Raises ConfigError or WeightsError."""

    @abstractmethod
    def transcribe(self, clips: Sequence[Pcm]) -> Sequence[WordTimes]:
        """Transcribe a batch of clips.

        Args:
            clips: One int16 [samples] array per clip at MIC_RATE_HZ, of SHORTEST_S to ``longest_s``.

        Returns:
            The words of each clip, in the order of ``clips``.
        """

    def transcribe_hinted(self, clips: Sequence[Pcm], hints: Sequence[SpeechHints]) -> Sequence[WordTimes]:
        """Transcribe a batch with the hints of each clip. Override this if the model takes hints (``Facets.hints``)."""
        return self.transcribe(clips)

    def warm_up(self) -> None:
        # Noise, because the speech gate would drop silence.
        noise = np.random.default_rng(0).integers(-2000, 2000, 2 * MIC_RATE_HZ, np.int16)
        warm_up(self, 1, noise, steps=2)

    def open(self, req: StageRequest) -> None:
        req.state = Clip(req.request.hints)

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs)

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Return the watchdog's time limit: ten times the duration of the audio in one step, plus 10 s for a busy
        machine.
        """
        coming = {id(req): sum(map(len, req.pending)) for req in reqs}
        lengths = [min(req.state.samples + coming[id(req)], self._longest) for req in reqs]
        return 10 + 10 * sum(lengths) / MIC_RATE_HZ

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        for req in reqs:
            while req.pending:
                req.state.take(req.pending.popleft())
        due = [req.state for req in reqs if self._is_due(req)]
        cut = {id(clip) for clip in due if clip.samples > self._longest}
        if due:
            self._update(due)
        return [guarded(self, req, self._emit, id(req.state) in cut) for req in reqs]

    @property
    def _longest(self) -> int:
        return round(self.longest_s * MIC_RATE_HZ)

    def _is_due(self, req: StageRequest) -> bool:
        """Return whether to transcribe a clip now: it has ended, is too long, or has enough new audio."""
        clip: Clip = req.state
        if clip.length_s < SHORTEST_S:
            return False
        if req.ended or clip.samples > self._longest:
            return True
        if clip.length_s < FIRST_S:
            return False
        return clip.new_s >= EVERY_S and self._share * clip.length_s <= MOST * clip.new_s

    def _update(self, clips: Sequence[Clip]) -> None:
        """Transcribe the clips, each up to the length that the model can take."""
        began_s = self._clock()
        sounds = [clip.sound()[: _cut(clip.sound(), self._longest)] for clip in clips]
        results = self._transcribed(sounds, [clip.hints for clip in clips])
        share = (self._clock() - began_s) / (sum(map(len, sounds)) / MIC_RATE_HZ)
        self._share = share if share > self._share else 0.9 * self._share + 0.1 * share
        for clip, sound, result in zip(clips, sounds, results, strict=True):
            clip.decoded_samples = clip.samples
            clip.latest = result.after(clip.settled, clip.settled_samples / MIC_RATE_HZ)
            if len(sound) < clip.samples:
                clip.settle(len(sound))

    def _transcribed(self, sounds: Sequence[Pcm], hints: Sequence[SpeechHints]) -> Sequence[WordTimes]:
        if not self.invents:
            return _checked(self.transcribe_hinted(sounds, hints), len(sounds))
        results = [NOTHING] * len(sounds)
        audible = [n for n, sound in enumerate(sounds) if is_loud(sound)]
        if audible:
            words = self.transcribe_hinted([sounds[n] for n in audible], [hints[n] for n in audible])
            for n, result in zip(audible, _checked(words, len(audible)), strict=True):
                results[n] = _said(result, sounds[n])
        return results

    def _emit(self, req: StageRequest, cut: bool) -> list[Chunk]:
        """Return the new transcript, if any.

        After a cut nothing is sent, because a partial transcript of the first part alone would retract words of the
        second.
        """
        clip: Clip = req.state
        req.needs_input = clip.samples <= self._longest
        return [] if cut else transcript(req, clip.latest, over=req.ended)


def _cut(pcm: Pcm, longest: int) -> int:
    """Return how many samples to transcribe at once.

    That is all of them, or up to the quietest place in the last third of ``longest``.
    """
    if len(pcm) <= longest:
        return len(pcm)
    first = longest - longest // 3 // CUT_FRAME * CUT_FRAME
    return first + int(loudness(pcm[first:longest], CUT_FRAME).argmin()) * CUT_FRAME + CUT_FRAME // 2


def _checked(results: Any, count: int) -> Sequence[WordTimes]:
    """Return what a subclass's ``transcribe`` returned. Raises StageFailed unless it is a WordTimes for each clip."""
    if not isinstance(results, Sequence) or isinstance(results, str):
        found = type(results).__name__
        raise StageFailed(f"transcribe must return a list with a WordTimes for each clip, not a {found}")
    for result in cast("Sequence[Any]", results):
        text = result.text if isinstance(result, WordTimes) else result
        if text is result or type(text) is not str:
            raise StageFailed(f"transcribe must return WordTimes(text) for each clip, not a {type(text).__name__}")
    if len(results) != count:
        raise StageFailed(f"transcribe must return one WordTimes for each clip: {len(results)} for {count} clips")
    return results


def _said(result: WordTimes, sound: Pcm) -> WordTimes:
    text = spoken(result.text, len(sound) / MIC_RATE_HZ)
    return WordTimes(text, result.words, result.language) if text else NOTHING
