"""Moonshine's streaming speech recogniser, on the CPU: for English on a laptop, half a second at a time.

``weights`` is a folder as published by Moonshine AI; nothing is downloaded. The library (extra ``moonshine``) computes
in its own thread. It processes lines, one stream for each; this stage decides where a line ends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.chunk import Chunk
from engine.core import MIC_RATE_HZ, Pcm, StageInfo
from engine.deployment.config import build
from engine.errors import ConfigError, EngineError
from engine.worker.asr.moonshine import moonshine_ears
from engine.worker.asr.speech_gate import is_loud, loudness
from engine.worker.asr.transcribing import EarsOptions, ears_info, floats, pcm_of, transcript
from engine.worker.asr.word_times import NOTHING, WordTimes, words_of
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest

BLOCK = MIC_RATE_HZ // 2
"""Samples that the library processes at once: a constant, so that the result is the same again after a loss."""
TAIL = np.zeros(3072, np.int16)
"""Silence after the last word: the library processes whole pieces of 80 ms, and holds back 32 ms."""
FORCE = 1
"""The flag to process all available audio, however short: MOONSHINE_FLAG_FORCE_UPDATE."""
NEVER_S = 1e9

SOON, LATEST = 8 * MIC_RATE_HZ, 14 * MIC_RATE_HZ
"""Samples of a line after which it ends at a pause, or at its quietest place.

The whole line is decoded again with each block, and the networks were not trained on longer ones.
"""
FRAME = MIC_RATE_HZ // 10
PAUSE = 0.1
"""The loudness of a pause, relative to the loudest part of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonshineOptions(EarsOptions):
    """The ``options`` of a Moonshine speech recognition stage."""

    users: int = 4
    """Maximum concurrent users. Each has a copy of the networks: the library processes one line at a time."""


@dataclass(slots=True)
class MoonshineUtterance:
    """The state of a user's turn."""

    waiting: list[Pcm] = field(default_factory=list[Pcm])
    """Audio that has not been processed."""
    samples: int = 0
    """The number of its samples."""
    stream: Any = None
    line: int = 0
    """Samples that the current line's stream has received."""
    loudest: float = 0.0
    settled: WordTimes = NOTHING
    """The text of all finished lines."""
    settled_samples: int = 0
    spoken: WordTimes = NOTHING
    """The text of all lines."""
    emitted: str = ""
    ended: bool = False

    def put(self, pcm: Pcm, first: bool = False) -> None:
        self.waiting.insert(0 if first else len(self.waiting), pcm)
        self.samples += len(pcm)

    def take(self) -> Pcm:
        """Return the next block, or the remaining audio if that is shorter."""
        whole = np.concatenate([*self.waiting, np.empty(0, np.int16)])
        self.waiting = [whole[BLOCK:]]
        self.samples = max(0, len(whole) - BLOCK)
        return whole[:BLOCK]

    def read(self, result: Any) -> None:
        """Read the library's result for the current line."""
        lines = [line for line in result.lines if line.text.strip()]
        text = " ".join(" ".join(line.text.split()) for line in lines)
        timed = [word for line in lines for word in line.words or ()]
        lasts_s = [max(0.0, word.end - word.start) for word in timed]
        words = words_of(text, [word.word for word in timed], [word.start for word in timed], lasts_s)
        self.spoken = WordTimes(text, words).after(self.settled, self.settled_samples / MIC_RATE_HZ)

    def settle(self) -> None:
        """Finish the current line."""
        self.settled = self.spoken
        self.settled_samples = self.settled_samples + self.line
        self.line = 0
        self.loudest = 0.0


class MoonshineStage:
    """The stage. Its items are int16 pieces at MIC_RATE_HZ; each step processes one block of each user."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = _options(config.options)
        return ears_info(config, moonshine_ears(config.weights, options.languages).languages, options.users)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._ears = moonshine_ears(config.weights, _options(config.options).languages)
        self._transcribers: dict[int, Any] = {0: self._ears.transcriber()}  # by slot, created on first use
        self._streams: dict[int, Any] = {}

    def warm_up(self) -> None:
        pcm = np.random.default_rng(0).integers(-2000, 2000, MIC_RATE_HZ, np.int16)
        warm_up(self, 1, pcm, steps=2)

    def open(self, req: StageRequest) -> None:
        req.state = MoonshineUtterance()

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs)

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Return ten times the duration of the longest line of each request, plus the loading time."""
        return 20 + 10 * LATEST / MIC_RATE_HZ * len(reqs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [guarded(self, req, self._hear) for req in reqs]

    def _hear(self, req: StageRequest) -> list[Chunk]:
        hearing: MoonshineUtterance = req.state
        while req.pending:
            hearing.put(req.pending.popleft())
        try:
            self._look(req, hearing)
        except Exception:
            self._transcribers.pop(req.slot, None)  # its state is unknown
            raise
        req.needs_input = hearing.samples < BLOCK
        return transcript(req, hearing.spoken, hearing.ended)

    def _look(self, req: StageRequest, hearing: MoonshineUtterance) -> None:
        """Process the next block; at the end, the remaining audio."""
        hearing.ended = req.ended and hearing.samples < BLOCK
        if hearing.samples < BLOCK and not hearing.ended:
            return
        block = hearing.take()
        if not hearing.line and not is_loud(block):  # the networks would invent words for silence
            hearing.settled_samples += len(block)
            return
        over = _line_end(hearing, block)
        if over < len(block):
            hearing.put(block[over:], first=True)
            hearing.ended = False
        self._listen(req, hearing, block[:over], last=over < len(block) or hearing.ended)

    def _listen(self, req: StageRequest, hearing: MoonshineUtterance, pcm: Pcm, last: bool) -> None:
        stream = self._stream(req, hearing)
        hearing.line += len(pcm)
        stream.add_audio(floats(pcm).tolist(), MIC_RATE_HZ)
        if not last:
            hearing.read(stream.update_transcription(FORCE))
            return
        # A stopped stream drops unprocessed audio, and only processes its line if new audio has arrived.
        stream.add_audio(floats(TAIL).tolist(), MIC_RATE_HZ)
        stream.update_transcription(FORCE)
        stream.add_audio(floats(TAIL).tolist(), MIC_RATE_HZ)
        stream.set_transcribe_flags(FORCE)
        result = stream.stop()
        if result is None:
            raise RuntimeError("the library failed at the end of a line and gave no reason")
        hearing.read(result)
        hearing.settle()
        hearing.stream = None

    def _stream(self, req: StageRequest, hearing: MoonshineUtterance) -> Any:
        """Return the library's stream of the current line. The slot's earlier stream is closed."""
        if hearing.stream is None:
            transcriber = self._transcribers.get(req.slot)
            if transcriber is None:
                transcriber = self._transcribers[req.slot] = self._ears.transcriber()
            if (before := self._streams.pop(req.slot, None)) is not None:
                before.close()
            hearing.stream = self._streams[req.slot] = transcriber.create_stream(NEVER_S)
            hearing.stream.start()
        return hearing.stream


STAGE = MoonshineStage


def _options(options: Mapping[str, Any]) -> MoonshineOptions:
    """Read the options. Raises ConfigError for invalid ones."""
    built = build(MoonshineOptions, dict(options), "options")
    if built.users < 1:
        raise ConfigError("options.users: must be at least 1")
    return built


def _line_end(hearing: MoonshineUtterance, block: Pcm) -> int:
    """Return the number of samples of a block that belong to the line: up to a pause or the quietest place, or all."""
    frames = loudness(block, FRAME)
    if not len(frames):
        return len(block)
    hearing.loudest = max(hearing.loudest, float(frames.max()))
    quietest = int(frames.argmin())
    pauses = frames[quietest] < PAUSE * hearing.loudest
    if hearing.line >= LATEST or (hearing.line >= SOON and pauses):
        return quietest * FRAME + FRAME // 2
    return len(block)
