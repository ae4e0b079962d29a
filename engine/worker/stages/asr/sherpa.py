"""Streaming speech recognisers of sherpa-onnx: many users are processed in one batch, one chunk of each per step.

``weights`` is a folder as published by the project k2-fsa/sherpa-onnx; nothing is downloaded. The library (extra
``local``) computes in its own threads, on the CPU.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.chunk import Chunk
from engine.core import MIC_RATE_HZ, Hint, Pcm, StageInfo
from engine.errors import EngineError
from engine.worker.asr.hotwords import sherpa_options
from engine.worker.asr.sherpa_streaming import SherpaEars, sherpa_ears
from engine.worker.asr.transcribing import ROW, ears_info, floats, pcm_of, transcript
from engine.worker.asr.word_times import WordTimes, words_of
from engine.worker.libraries.sherpa import recognizer_of
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest


@dataclass(slots=True)
class SherpaUtterance:
    """The state of a user's turn: the library's stream, and the words that were emitted."""

    stream: Any
    emitted: str = ""
    ended: bool = False


class SherpaAsrStage:
    """The stage. Its items are int16 pieces at MIC_RATE_HZ."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return _info(config, _ears_of(config))

    def __init__(self, config: StageConfig) -> None:
        self._ears = _ears_of(config)
        self.info = _info(config, self._ears)
        self._recognizer = recognizer_of(self._ears, "asr.sherpa", config.threads)

    def warm_up(self) -> None:
        warm_up(self, min(self.info.slots, 2), np.zeros(2 * MIC_RATE_HZ, np.int16), steps=2)

    def open(self, req: StageRequest) -> None:
        req.state = SherpaUtterance(self._ears.stream(self._recognizer, req.request.hints.keywords))

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs, ROW)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        """Add the new audio, then decode one chunk of each user who has enough, in one batch."""
        failed = {id(req): error for req in reqs if (error := guarded(self, req, self._take))}
        hearing_reqs = [req for req in reqs if id(req) not in failed]
        ready = [req.state.stream for req in hearing_reqs if self._recognizer.is_ready(req.state.stream)]
        if ready:
            self._recognizer.decode_streams(ready)
        return [failed.get(id(req)) or guarded(self, req, self._emit) for req in reqs]

    def _take(self, req: StageRequest) -> None:
        hearing: SherpaUtterance = req.state
        while req.pending:
            hearing.stream.accept_waveform(MIC_RATE_HZ, floats(req.pending.popleft()))
        if req.ended and not hearing.ended:
            hearing.stream.accept_waveform(MIC_RATE_HZ, np.zeros(round(self._ears.tail_s * MIC_RATE_HZ), np.float32))
            hearing.stream.input_finished()
            hearing.ended = True

    def _emit(self, req: StageRequest) -> list[Chunk]:
        hearing: SherpaUtterance = req.state
        req.needs_input = not self._recognizer.is_ready(hearing.stream)
        over = hearing.ended and req.needs_input
        spoken = self._all(hearing) if over else WordTimes(self._recognizer.get_result(hearing.stream).strip())
        return transcript(req, spoken.lower() if self._ears.capitals else spoken, over)

    def _all(self, hearing: SherpaUtterance) -> WordTimes:
        """Return the whole text with the times of its words."""
        result = self._recognizer.get_result_all(hearing.stream)
        text = result.text.strip()
        return WordTimes(text, words_of(text, result.tokens, result.timestamps, logprobs=result.ys_probs))


STAGE = SherpaAsrStage


def _ears_of(config: StageConfig) -> SherpaEars:
    options = sherpa_options(config.options)
    return sherpa_ears(config.weights, options.languages, options.hotwords_score)


def _info(config: StageConfig, ears: SherpaEars) -> StageInfo:
    hints: frozenset[Hint] = frozenset({"keywords"} if ears.hotwords else ())
    return ears_info(config, ears.languages, hints=hints)
