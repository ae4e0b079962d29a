"""Ears of sherpa-onnx that hear whole clips: what was said so far again and again while that is cheap, then all of it.

``weights`` is a folder as the project k2-fsa/sherpa-onnx publishes them; nothing is ever fetched. The library (extra
``local``) computes in a thread of its own, on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.chunk import Chunk
from engine.core import MIC_RATE_HZ, Pcm, StageInfo
from engine.errors import EngineError
from engine.worker.audible import is_loud, loudness, spoken
from engine.worker.hearing import ears_info, ears_options, floats, pcm_of, transcript
from engine.worker.sherpa_library import recognizer_of
from engine.worker.sherpa_offline import offline_ears
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest
from engine.worker.timed_words import NOTHING, Spoken, words_of

SHORTEST_S = 0.1
"""A clip that is shorter says nothing, and some networks cannot take it."""

EVERY_S = 0.8
"""Seconds of new sound that are worth hearing all anew."""

MOST = 0.25
"""The most time that hearing anew may take while the user speaks, as a share of the time in which it was said."""

CUT_FRAME = MIC_RATE_HZ // 5
"""Samples that are quiet where a clip that is too long is cut, about."""


@dataclass(slots=True)
class Clip:
    """One user's speech since the last cut, how much of it was heard, and the words that were given."""

    pieces: list[Pcm] = field(default_factory=list[Pcm])
    samples: int = 0
    decoded_samples: int = 0
    settled: Spoken = NOTHING
    """The words before the clip, in parts that are not heard again."""
    settled_samples: int = 0
    latest: Spoken = NOTHING
    """All of it, as it was heard last."""
    emitted: str = ""

    @property
    def length_s(self) -> float:
        return self.samples / MIC_RATE_HZ

    @property
    def new_s(self) -> float:
        return (self.samples - self.decoded_samples) / MIC_RATE_HZ

    def take(self, pcm: Pcm) -> None:
        self.pieces.append(pcm)
        self.samples += len(pcm)

    def sound(self) -> Pcm:
        """int16 [samples]: all of it."""
        self.pieces = [np.concatenate(self.pieces)] if self.pieces else []
        return self.pieces[0] if self.pieces else np.empty(0, np.int16)

    def settle(self, samples: int) -> None:
        """Settle so many samples: they are not heard again."""
        rest = self.sound()[samples:]
        self.pieces = [rest]
        self.samples = len(rest)
        self.decoded_samples = 0
        self.settled = self.latest
        self.settled_samples = self.settled_samples + samples


class Ears:
    """Rows are int16 pieces at MIC_RATE_HZ. All who have said enough that is new are heard in one batch; a clip that is
    longer than its network can hear is heard in parts, which are cut where it is quiet."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return ears_info(config, offline_ears(config.weights, ears_options(config.options).languages).languages)

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._ears = offline_ears(config.weights, ears_options(config.options).languages)
        self.info = ears_info(config, self._ears.languages)
        self._recognizer = recognizer_of(self._ears, "asr.sherpa_offline", config.threads)
        self._longest = round(self._ears.longest_s * MIC_RATE_HZ)
        self._clock = clock
        self._share = 0.0  # the share of a clip's length that it takes to hear it

    def warm_up(self) -> None:
        warm_up(self, 1, np.zeros(2 * MIC_RATE_HZ, np.int16), steps=2)

    def open(self, req: StageRequest) -> None:
        req.state = Clip()

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs)

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Ten times as long as is heard of each at once, and what a busy machine takes besides."""
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
            self._hear(due)
        return [guarded(self, req, self._emit, id(req.state) in cut) for req in reqs]

    def _is_due(self, req: StageRequest) -> bool:
        """Whether a clip is to be heard now: its end has come, it is too long, or it costs little beside its news."""
        clip: Clip = req.state
        if clip.length_s < SHORTEST_S:
            return False
        if req.ended or clip.samples > self._longest:
            return True
        return clip.new_s >= EVERY_S and self._share * clip.length_s <= MOST * clip.new_s

    def _hear(self, clips: Sequence[Clip]) -> None:
        """Hear these, each as far as its network can hear at once."""
        began_s = self._clock()
        sounds = [clip.sound()[: _cut(clip.sound(), self._longest)] for clip in clips]
        results = self._recognized(sounds)
        share = (self._clock() - began_s) / (sum(map(len, sounds)) / MIC_RATE_HZ)
        self._share = share if share > self._share else 0.9 * self._share + 0.1 * share
        for clip, sound, result in zip(clips, sounds, results, strict=True):
            clip.decoded_samples = clip.samples
            clip.latest = result.after(clip.settled, clip.settled_samples / MIC_RATE_HZ)
            if len(sound) < clip.samples:
                clip.settle(len(sound))

    def _recognized(self, sounds: Sequence[Pcm]) -> list[Spoken]:
        streams = [self._stream(sound) for sound in sounds]
        if asked := [stream for stream in streams if stream is not None]:
            self._recognizer.decode_streams(asked)
        return [NOTHING if stream is None else self._spoken(stream.result) for stream in streams]

    def _stream(self, sound: Pcm) -> Any:
        """The library's stream of a sound; None where its network would invent words."""
        if self._ears.invents and not is_loud(sound):
            return None
        stream = self._ears.stream(self._recognizer)
        stream.accept_waveform(MIC_RATE_HZ, floats(sound))
        return stream

    def _spoken(self, result: Any) -> Spoken:
        text = spoken(result.text) if self._ears.invents else result.text.strip()
        words = words_of(text, _tokens(result), result.timestamps, result.durations, result.ys_log_probs)
        return Spoken(text, words).lower() if self._ears.capitals else Spoken(text, words)

    def _emit(self, req: StageRequest, cut: bool) -> list[Chunk]:
        """Return what was heard; the words of a part alone are not sent, since they would take back what was sent
        before."""
        clip: Clip = req.state
        over = req.ended and not cut
        req.needs_input = clip.samples <= self._longest
        return [] if cut else transcript(req, clip.latest, over)


STAGE = Ears


def _cut(pcm: Pcm, longest: int) -> int:
    """Return how many samples of int16 [samples] are heard at once: all, or up to the quietest place of the last
    third."""
    if len(pcm) <= longest:
        return len(pcm)
    first = longest - longest // 3 // CUT_FRAME * CUT_FRAME
    return first + int(loudness(pcm[first:longest], CUT_FRAME).argmin()) * CUT_FRAME + CUT_FRAME // 2


def _tokens(result: Any) -> Sequence[str]:
    """The tokens of what was heard; none where they are parts of letters (Whisper's are, outside of Latin script): the
    library raises as soon as those are looked at, while the text is whole."""
    try:
        return result.tokens
    except UnicodeDecodeError:
        return ()
