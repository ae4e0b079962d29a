"""Ears of sherpa-onnx that hear whole clips: what was said so far again and again while that is cheap, then all of it.

``weights`` is a folder as the project k2-fsa/sherpa-onnx publishes them; nothing is ever fetched. The library (extra
``local``) computes in a thread of its own, on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.chunk import Chunk, Speech
from engine.core import MIC_RATE_HZ, Pcm, StageInfo, Wave
from engine.errors import EngineError
from engine.worker.sherpa_hearing import ears_info, ears_options, recognizer_of, words
from engine.worker.sherpa_offline import offline_ears
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest

SHORTEST_S = 0.1
"""A clip that is shorter says nothing, and some networks cannot take it."""

EVERY_S = 0.8
"""So much that is new is worth hearing all anew."""

MOST = 0.25
"""Of the time in which it was said, what it may take to hear it anew while the user speaks."""


@dataclass(slots=True)
class Clip:
    """What one user has said, how much of it was heard, and the words that were given."""

    pieces: list[Wave] = field(default_factory=list[Wave])
    samples: int = 0
    decoded_samples: int = 0
    emitted: str = ""

    @property
    def length_s(self) -> float:
        return self.samples / MIC_RATE_HZ

    @property
    def new_s(self) -> float:
        return (self.samples - self.decoded_samples) / MIC_RATE_HZ


class Ears:
    """Rows are int16 pieces at MIC_RATE_HZ. All who have said enough that is new are heard in one batch."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return ears_info(config, offline_ears(config.weights, ears_options(config.options).languages))

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._ears = offline_ears(config.weights, ears_options(config.options).languages)
        self.info = ears_info(config, self._ears)
        self._recognizer = recognizer_of(self._ears, "asr.sherpa_offline", config.threads)
        self._clock = clock
        self._share = 0.0  # of a clip's length, what it takes to hear it

    def warm_up(self) -> None:
        warm_up(self, 1, np.zeros(2 * MIC_RATE_HZ, np.int16), steps=2)

    def open(self, req: StageRequest) -> None:
        req.state = Clip()

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        async for chunk in inputs:
            if isinstance(chunk, Speech):
                yield chunk.pcm

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Ten times as long as was said, and what a busy machine takes besides."""
        coming = sum(len(pcm) for req in reqs for pcm in req.pending) / MIC_RATE_HZ
        return 10 + 10 * (coming + sum(req.state.length_s for req in reqs))

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        for req in reqs:
            _take(req)
        due = [req for req in reqs if self._is_due(req)]
        texts = dict(zip(map(id, due), self._transcribed([req.state for req in due]) if due else (), strict=True))
        return [guarded(self, req, self._emit, texts.get(id(req))) for req in reqs]

    def _is_due(self, req: StageRequest) -> bool:
        """Whether a clip is to be heard now: its end has come, or it costs little beside what is new in it."""
        clip: Clip = req.state
        if clip.length_s < SHORTEST_S:
            return False
        return req.ended or (clip.new_s >= EVERY_S and self._share * clip.length_s <= MOST * clip.new_s)

    def _transcribed(self, clips: Sequence[Clip]) -> list[str]:
        began_s = self._clock()
        streams = [self._recognizer.create_stream() for _ in clips]
        for stream, clip in zip(streams, clips, strict=True):
            clip.pieces, clip.decoded_samples = [np.concatenate(clip.pieces)], clip.samples
            stream.accept_waveform(MIC_RATE_HZ, clip.pieces[0])
        self._recognizer.decode_streams(streams)
        share = (self._clock() - began_s) / sum(clip.length_s for clip in clips)
        self._share = share if share > self._share else 0.9 * self._share + 0.1 * share
        return [stream.result.text.strip() for stream in streams]

    def _emit(self, req: StageRequest, transcript: str | None) -> list[Chunk]:
        clip: Clip = req.state
        text = clip.emitted if transcript is None else transcript.lower() if self._ears.capitals else transcript
        return words(req, text, over=req.ended)


STAGE = Ears


def _take(req: StageRequest) -> None:
    clip: Clip = req.state
    while req.pending:
        piece = req.pending.popleft().astype(np.float32) / 32768
        clip.pieces.append(piece)
        clip.samples += len(piece)
