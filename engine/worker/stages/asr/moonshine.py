"""Streaming ears of Moonshine, on the CPU: for English on a laptop, half a second at a time.

``weights`` is a folder as Moonshine AI publishes them; nothing is ever fetched. The library (extra ``moonshine``)
computes in a thread of its own. It hears lines, a stream for each: where one ends is decided here.
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
"""Samples that the library looks at at once. Always so many, so that what is heard again after a loss is heard the
same."""
TAIL = np.zeros(3072, np.int16)
"""Silence behind the last word: the library looks at whole pieces of 80 ms, and lets 32 ms wait."""
FORCE = 1
"""The flag to look at what came, however little it is: MOONSHINE_FLAG_FORCE_UPDATE."""
NEVER_S = 1e9

SOON, LATEST = 8 * MIC_RATE_HZ, 14 * MIC_RATE_HZ
"""Samples of a line before it ends at a pause, and before it ends at the quietest place: all of it is decoded again
with each block, and the networks were made for no more."""
FRAME = MIC_RATE_HZ // 10
PAUSE = 0.1
"""A pause is that much quieter than the loudest of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonshineOptions(EarsOptions):
    """The ``options`` of the stage."""

    users: int = 4
    """The number of users who are heard at once. Each has the networks for themselves: the library hears one line at a
    time in them."""


@dataclass(slots=True)
class MoonshineUtterance:
    """One user who speaks: the sound that was not looked at yet, the line that is spoken, and the words that were
    given."""

    waiting: list[Pcm] = field(default_factory=list[Pcm])
    samples: int = 0
    """Samples that wait."""
    stream: Any = None
    line: int = 0
    """Samples that the stream has been given."""
    loudest: float = 0.0
    settled: WordTimes = NOTHING
    """The lines before it."""
    settled_samples: int = 0
    spoken: WordTimes = NOTHING
    """All that was said."""
    emitted: str = ""
    ended: bool = False

    def put(self, pcm: Pcm, first: bool = False) -> None:
        self.waiting.insert(0 if first else len(self.waiting), pcm)
        self.samples += len(pcm)

    def take(self) -> Pcm:
        """The next block that waits, or what there is."""
        whole = np.concatenate([*self.waiting, np.empty(0, np.int16)])
        self.waiting = [whole[BLOCK:]]
        self.samples = max(0, len(whole) - BLOCK)
        return whole[:BLOCK]

    def read(self, result: Any) -> None:
        """Take what the library makes of the line."""
        lines = [line for line in result.lines if line.text.strip()]
        text = " ".join(" ".join(line.text.split()) for line in lines)
        timed = [word for line in lines for word in line.words or ()]
        lasts_s = [max(0.0, word.end - word.start) for word in timed]
        words = words_of(text, [word.word for word in timed], [word.start for word in timed], lasts_s)
        self.spoken = WordTimes(text, words).after(self.settled, self.settled_samples / MIC_RATE_HZ)

    def settle(self) -> None:
        """The line is over."""
        self.settled = self.spoken
        self.settled_samples = self.settled_samples + self.line
        self.line = 0
        self.loudest = 0.0


class MoonshineStage:
    """Rows are int16 pieces at MIC_RATE_HZ; each step looks at a block of each user."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = _options(config.options)
        return ears_info(config, moonshine_ears(config.weights, options.languages).languages, options.users)

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._ears = moonshine_ears(config.weights, _options(config.options).languages)
        self._transcribers: dict[int, Any] = {0: self._ears.transcriber()}  # by slot, once it is used
        self._streams: dict[int, Any] = {}

    def warm_up(self) -> None:
        pcm = np.random.default_rng(0).integers(-2000, 2000, MIC_RATE_HZ, np.int16)
        warm_up(self, 1, pcm, steps=2)

    def open(self, req: StageRequest) -> None:
        req.state = MoonshineUtterance()

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs)

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        """Ten times the sound that each hears at once, and what loading takes besides."""
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
        """Look at the next block, if there is one; at what is left, once there is no more."""
        hearing.ended = req.ended and hearing.samples < BLOCK
        if hearing.samples < BLOCK and not hearing.ended:
            return
        block = hearing.take()
        if not hearing.line and not is_loud(block):  # the networks would write words into silence
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
        # A stream that is stopped forgets what it has not looked at, and looks at its line only if more has come.
        stream.add_audio(floats(TAIL).tolist(), MIC_RATE_HZ)
        stream.update_transcription(FORCE)
        stream.add_audio(floats(TAIL).tolist(), MIC_RATE_HZ)
        stream.set_transcribe_flags(FORCE)
        result = stream.stop()
        if result is None:
            raise RuntimeError("the library failed at the end of a line and reports no reason")
        hearing.read(result)
        hearing.settle()
        hearing.stream = None

    def _stream(self, req: StageRequest, hearing: MoonshineUtterance) -> Any:
        """The library's stream of the line: the one that its slot had before is forgotten."""
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
    """Raises ConfigError for others."""
    built = build(MoonshineOptions, dict(options), "options")
    if built.users < 1:
        raise ConfigError("options.users: must be at least 1")
    return built


def _line_end(hearing: MoonshineUtterance, block: Pcm) -> int:
    """Return after how many samples of a block its line ends: at a pause, or where it is quietest; all of them: not in
    it."""
    frames = loudness(block, FRAME)
    if not len(frames):
        return len(block)
    hearing.loudest = max(hearing.loudest, float(frames.max()))
    quietest = int(frames.argmin())
    pauses = frames[quietest] < PAUSE * hearing.loudest
    if hearing.line >= LATEST or (hearing.line >= SOON and pauses):
        return quietest * FRAME + FRAME // 2
    return len(block)
