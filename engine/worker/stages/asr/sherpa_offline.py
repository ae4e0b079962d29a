"""Speech recognisers of sherpa-onnx that transcribe whole clips.

``weights`` is a folder as published by the project k2-fsa/sherpa-onnx; nothing is downloaded. The library (extra
``local``) computes in its own threads, on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm, StageInfo
from engine.worker.asr.sherpa_offline import TAIL_S, OfflineEars, offline_ears
from engine.worker.asr.transcribing import ears_info, ears_options, floats
from engine.worker.asr.whole_clips import WholeClips
from engine.worker.asr.word_times import WordTimes, words_of
from engine.worker.libraries.sherpa import recognizer_of
from engine.worker.stage import StageConfig


class SherpaOfflineAsrStage(WholeClips):
    """The stage. One call of the library decodes all clips of a batch."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return ears_info(config, _ears_of(config).languages)

    def __init__(self, config: StageConfig, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(config, clock)
        self._ears = _ears_of(config)
        self._recognizer = recognizer_of(self._ears, "asr.sherpa_offline", config.threads)
        self.longest_s = self._ears.longest_s
        self.invents = self._ears.invents

    def transcribe(self, clips: Sequence[Pcm]) -> Sequence[WordTimes]:
        streams = [self._stream(clip) for clip in clips]
        self._recognizer.decode_streams(streams)
        return [self._spoken(stream.result) for stream in streams]

    def _stream(self, clip: Pcm) -> Any:
        stream = self._ears.stream(self._recognizer)
        tail_s = TAIL_S if len(clip) < self._ears.short_s * MIC_RATE_HZ else 0
        stream.accept_waveform(MIC_RATE_HZ, np.pad(floats(clip), (0, round(tail_s * MIC_RATE_HZ))))
        return stream

    def _spoken(self, result: Any) -> WordTimes:
        text = result.text.strip()
        words = words_of(text, _tokens(result), result.timestamps, result.durations, result.ys_log_probs)
        language = result.lang.strip("<|>")  # SenseVoice writes "<|en|>"
        spoken = WordTimes(text, words, language if language in self._ears.languages else "")
        return spoken.lower() if self._ears.capitals else spoken


STAGE = SherpaOfflineAsrStage


def _ears_of(config: StageConfig) -> OfflineEars:
    return offline_ears(config.weights, ears_options(config.options).languages)


def _tokens(result: Any) -> Sequence[str]:
    """Return the tokens of a result; none if they split characters (as Whisper's do outside Latin script).

    The library raises when such tokens are read, although the text is complete.
    """
    try:
        return result.tokens
    except UnicodeDecodeError:
        return ()
