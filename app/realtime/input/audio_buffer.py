"""The input side of a session: samples come in, turn events go out, found by voice activity or committed by the client.

Knows no wire format, no engine, and nothing of the answers: the session says when one begins, plays and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from app.realtime.conversation import Utterance
from app.realtime.input.camera_buffer import CameraBuffer, frame_of
from app.realtime.input.endpointing import fall
from app.realtime.input.held_turn import KEPT, HeldTurn
from app.realtime.input.noise_reduction import FRAME, cleaner
from app.realtime.input.overlap import PATIENCE_MS, Overlap
from app.realtime.input.recent_audio import RecentAudio
from app.realtime.input.speculation import Speculation
from app.realtime.input.turn_config import turn_config
from app.realtime.input.turn_detector import (
    TurnDetector,
    VoiceEvent,
    VoicePaused,
    VoiceResumed,
    VoiceStarted,
    VoiceStopped,
    to_ms,
    to_samples,
)
from app.realtime.input.turn_events import (
    IdleTimedOut,
    OverlapStarted,
    TurnCommitted,
    TurnDropped,
    TurnEvent,
    TurnPaused,
    TurnResumed,
    TurnStarted,
    TurnStopped,
    VoiceBuffered,
)
from app.realtime.ports import Moment
from app.realtime.protocol import LONG_BYTES, CameraFrame, Decoder, Options, SemanticVad, rate_of, sample_count
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.slices import LoopTime
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.core import Pcm, Wave
from engine.resampler import Resampler

STEP = 512
"""Samples that are judged at once: a chunk of the voice activity detector, 32 ms."""

PIECE = 16 * FRAME
"""Samples that are cleaned of noise at once, where that is asked for: five steps, a millisecond of work."""

SHORTEST_S = 0.1
"""The protocol's least audio for a commit."""


class InputAudioBuffer:
    """The input buffer of one session. ``emit`` takes each turn event at once, and never waits; a Refusal that it
    raises is passed on."""

    def __init__(
        self,
        context: SessionContext,
        options: Options,
        emit: Callable[[TurnEvent], None],
        loop_time: LoopTime,
        overlap_ms: int = 0,
    ) -> None:
        self._context = context
        self._options = options
        self._emit = emit
        self._loop_time = loop_time
        self.speculation = Speculation(context.turns.guess_ms)
        self.muted = False
        """Whether the microphone counts as silent."""
        self._overlap_ms = overlap_ms  # how long speech must last that is no back-channel to an answer
        self._overlap: Overlap | None = None  # what is said over an answer, until it is known whether it is a turn
        self._answer_plays = False  # whether the listener hears an answer
        model = context.engine.model
        self._feed = model.camera
        self._film = "video" in model.abilities
        self._camera = CameraBuffer(1 / context.camera.fps)
        self._limit = int(context.limits.audio_s * MIC_RATE_HZ)
        self._decoder = Decoder(options.audio.input.format)
        self._noise = cleaner(None)
        self._echo = Resampler(SPEAKER_RATE_HZ, MIC_RATE_HZ)
        self._recent = RecentAudio()
        self._held = HeldTurn(self._limit)
        self._utterance: Utterance | None = None
        self._detector = TurnDetector(vad=context.vad())
        self._detector_start = 0  # the session's position at which the detector began to count
        self._falling = 0.0  # the fall of the user's voice before the present pause
        self._quiet_from: int | None = None  # the position where the last answer ended; None while somebody speaks
        self._reduce_noise()
        self.configure(options)

    def configure(self, options: Options) -> None:
        """Take new settings; turn detection that is switched on or off forgets the turn it was in."""
        before = self._options
        self._options = options
        format, detection = options.audio.input.format, options.audio.input.turn_detection
        if format != before.audio.input.format:
            self._decoder = Decoder(format)
        if (detection is None) != (before.audio.input.turn_detection is None):
            self._drop_turn()
            self._detector = TurnDetector(vad=self._context.vad())
            self._detector_start = self._recent.position
        if options.audio.input.noise_reduction != before.audio.input.noise_reduction:
            self._reduce_noise()
        self._tune()

    async def append(self, data: bytes) -> None:
        """Take bytes in the session's format. Raises MediaError, and Refusal.

        Long ones are decoded and judged piece by piece: other sessions get their turn, and memory is for one piece.
        """
        if len(data) <= LONG_BYTES:
            await self.add_samples(self._decoder.push(data))
            return
        format = self._options.audio.input.format
        if not self._has_room(sample_count(data, format) * MIC_RATE_HZ // rate_of(format)):
            return
        for at in range(0, len(data), LONG_BYTES):
            push = partial(self._decoder.push, data[at : at + LONG_BYTES])
            await self.add_samples(await self._context.slices.aside(push))

    async def add_samples(self, pcm: Pcm) -> None:
        """Take int16 [samples] at MIC_RATE_HZ. Raises Refusal."""
        if not self._has_room(len(pcm)):
            return
        pcm = np.zeros_like(pcm) if self.muted else pcm
        for start in range(0, len(pcm), PIECE):
            piece = pcm[start : start + PIECE]
            clean = self._noise.clean(piece)
            for at in range(0, len(piece), STEP):
                self._add_step(piece[at : at + STEP], clean[at : at + STEP])
                await self._loop_time.pause()

    def commit(self) -> None:
        """End the turn because the client says so. Raises Refusal if there is too little of it."""
        utterance = self._utterance
        if utterance is None or utterance.seconds < SHORTEST_S:
            held_ms = 0 if utterance is None else round(utterance.seconds * 1000)
            message = f"A turn needs {SHORTEST_S * 1000:.0f} ms of audio; the buffer holds {held_ms} ms."
            raise Refusal("input_audio_buffer_commit_empty", message)
        self._detector.reset()
        if self._overlap is not None:
            self.take_turn()
        self._end(utterance, TurnCommitted(utterance))

    async def add_encoded_frame(self, url: str) -> None:
        """Take a picture of the client's camera as a data URI, if one is due. Raises MediaError."""
        if self._camera.is_due(self._context.now()):
            self.add_frame(await frame_of(url, self._context.slices, self._feed.side))

    def add_frame(self, frame: CameraFrame) -> None:
        """Take a picture of the client's camera: it joins the turn that is spoken, or the next one."""
        self._camera.add_frame(frame, self._context.now(), self._recent.position)
        if self._utterance is not None:
            self._show(self._utterance)

    def take_turn(self) -> None:
        """Take what is said over an answer for a turn."""
        self._overlap = None
        if self._utterance is not None:
            self._emit(TurnStarted(self._utterance, to_ms(self._utterance.start)))

    def clear(self) -> None:
        """Forget everything since the last turn."""
        self._drop_turn()
        self._recent.clear()
        self._detector.reset()

    def forget(self) -> None:
        """The session is over: sound and pictures are not needed any more."""
        self._utterance = None
        self._recent.clear()
        self._camera.clear()

    def playing(self, samples: Wave) -> None:
        """The listener hears float32 [samples] at SPEAKER_RATE_HZ now, or after all that was sent before.

        Their echo is not the user.
        """
        self._answer_plays = True
        if not self._by_hand:
            pcm = (np.clip(samples, -1, 1) * 32767).astype(np.int16)
            self._detector.playing(self._echo.push(pcm))

    def playback_stopped(self) -> None:
        """The listener hears nothing of the samples that were not played yet."""
        self._answer_plays = False
        self._detector.stopped()

    def response_started(self) -> None:
        """An answer is under way: the user need not speak."""
        self._quiet_from = None

    def response_ended(self, left_s: float) -> None:
        """The answer is over, and heard in ``left_s`` seconds: from then on the user may be silent for too long."""
        self._answer_plays = False
        self._quiet_from = self._recent.position + round(left_s * MIC_RATE_HZ)

    @property
    def _by_hand(self) -> bool:
        """Whether the client says when a turn is over."""
        return self._options.audio.input.turn_detection is None

    def _has_room(self, samples: int) -> bool:
        """Whether so many more fit into a turn that the client ends. Raises Refusal, once in a turn, where they do
        not."""
        if not self._by_hand:
            return True
        utterance, last = self._utterance, np.zeros(0, np.int16)
        if utterance is not None and self._options.can_respond and self._held.gives_way(utterance, samples):
            last = utterance.pcm[-KEPT:].copy()
            utterance.close()
            utterance = None
        if utterance is None:
            utterance = self._utterance = self._new_utterance(self._recent.position - len(last))
            utterance.push(last)
            self._show(utterance)
        return self._held.has_room(utterance, samples)

    def _tune(self) -> None:
        """Set the detector by the session's settings, the user's words so far, and earlier speculation's success."""
        said = self._utterance
        moment = Moment() if said is None else Moment(said.so_far, self._falling, said.whole, said.listening)
        overlap_ms = self._overlap_ms if self._answer_plays else 0  # whoever listens says "mm-hm"
        self._detector.config = turn_config(self._options, self._context, self.speculation, moment, overlap_ms)

    def _reduce_noise(self) -> None:
        """Clean what comes from now on as the session's settings say, but for ears that do so by themselves."""
        wanted = self._options.audio.input.noise_reduction
        if wanted is None or self._context.engine.model.reduces_noise:
            self._noise = cleaner(None)
        else:
            self._noise = cleaner(wanted.type, wanted.strength)

    def _add_step(self, pcm: Pcm, clean: Pcm) -> None:
        """Find turns in the sound as it is; the ears get as much of it cleaned."""
        if not self._by_hand:
            self._find_turns(pcm, clean)
        elif self._utterance is not None:
            self._recent.push(clean, 0)
            self._utterance.push(clean)
            self._find_voice(self._utterance, pcm)

    def _find_voice(self, utterance: Utterance, pcm: Pcm) -> None:
        """A turn that the client commits is listened to from its first voice on, and its pauses are found."""
        if not self._options.can_respond:
            return
        for event in self._detector.feed(pcm):
            match event:
                case VoiceStarted():
                    self._held.voiced = True
                    self._emit(VoiceBuffered(utterance))
                case VoicePaused():
                    self._emit(TurnPaused())
                case VoiceResumed():
                    self._emit(TurnResumed())
                    self._show(utterance)
                case VoiceStopped():  # not by any silence: the client says so
                    pass
        self._tune()

    def _find_turns(self, pcm: Pcm, clean: Pcm) -> None:
        config = self._detector.config
        keep_ms = config.prefix_padding_ms + max(config.min_speech_ms, self._overlap_ms) + 100
        self._recent.push(clean, max(to_samples(keep_ms), self._quiet_samples()))
        if self._utterance is not None:
            self._push(self._utterance, clean)
        if self._utterance is not None or self._overlap_ms:
            self._tune()  # more may have been understood, or an answer has begun or ended
        for event in self._detector.feed(pcm):
            if self._overlap is not None:
                self._overlap.follow(event)
            self._on_voice(event)
        self._weigh(to_ms(self._detector.position))
        self._check_idle()

    def _quiet_samples(self) -> int:
        """Return how long nobody has spoken since the last answer, where the session's settings ask for it."""
        detection = self._options.audio.input.turn_detection
        if self._quiet_from is None or detection is None or detection.idle_timeout_ms is None:
            return 0
        return max(0, self._recent.position - self._quiet_from) if self._options.auto_responds else 0

    def _check_idle(self) -> None:
        """Make a turn of the silence itself after ``idle_timeout_ms`` without a word."""
        detection, quiet = self._options.audio.input.turn_detection, self._quiet_samples()
        if not quiet or self._utterance is not None or detection is None:
            return
        if quiet < to_samples(detection.idle_timeout_ms or 0):
            return
        start = self._recent.position - quiet
        utterance = self._new_utterance(start)
        utterance.push(self._recent.since(start)[-self._limit :])
        self._end(utterance, IdleTimedOut(utterance, to_ms(start), to_ms(self._recent.position)))

    def _push(self, utterance: Utterance, pcm: Pcm) -> None:
        """Append to the turn; one that has grown too long ends here, as if the user had paused."""
        if utterance.samples + len(pcm) <= self._limit:
            utterance.push(pcm)
            return
        self._detector.reset()
        self._end(utterance, TurnStopped(utterance, to_ms(self._recent.position)))

    def _on_voice(self, event: VoiceEvent) -> None:
        match event:
            case VoiceStarted(audio_start_ms=start_ms):
                self._begin(self._detector_start + to_samples(start_ms))
            case VoicePaused(speech_end_ms=end_ms):
                if self._utterance is not None:
                    self._judge_fall(self._utterance, end_ms)
                self._emit(TurnPaused())
            case VoiceResumed():
                self._falling = 0.0
                self._emit(TurnResumed())
                if self._utterance is not None:
                    self._show(self._utterance)
                self._tune()
            case VoiceStopped(audio_end_ms=end_ms, speech_end_ms=speech_end_ms):
                self._weigh(end_ms + PATIENCE_MS)  # it is over: what is known has to do
                if self._utterance is not None:
                    self._utterance.silence_ms = end_ms - speech_end_ms
                    end = self._detector_start + to_samples(end_ms)
                    self._end(self._utterance, TurnStopped(self._utterance, to_ms(end)))
                    self._tune()

    def _begin(self, start: int) -> None:
        """A turn begins, at that position of the session."""
        utterance = self._utterance = self._new_utterance(start)
        self._falling = 0.0
        self._quiet_from = None
        utterance.push(self._recent.since(start))
        self._show(utterance)
        if self._overlap_ms and self._answer_plays:
            self._overlap = Overlap(to_ms(self._detector.position) - self._overlap_ms)
            self._emit(OverlapStarted(utterance))
        else:
            self._emit(TurnStarted(utterance, to_ms(start)))

    def _weigh(self, now_ms: int) -> None:
        """Let what is said over an answer be a turn, or nothing, once it can be told."""
        if self._overlap is None or self._utterance is None:
            return
        match self._overlap.is_turn(self._utterance, now_ms):
            case True:
                self.take_turn()
            case False:
                self._detector.reset()
                self._drop_turn()
            case None:
                pass

    def _judge_fall(self, utterance: Utterance, end_ms: int) -> None:
        """Judge how the voice ended, where the judge of the pause wants to know."""
        if isinstance(self._options.audio.input.turn_detection, SemanticVad):
            silent = self._recent.position - self._detector_start - to_samples(end_ms)
            self._falling = fall(utterance.pcm[: utterance.samples - silent])

    def _end(self, utterance: Utterance, event: TurnEvent) -> None:
        """The turn is the session's from now on."""
        self._show(utterance)
        self._utterance = self._quiet_from = None
        self._held.clear()
        self._camera.clear()
        self._emit(event)

    def _new_utterance(self, start: int) -> Utterance:
        return Utterance(self._limit, self._feed, self._film, start)

    def _show(self, utterance: Utterance) -> None:
        """The camera's pictures by now are part of the turn; in a pause its answer is made without them."""
        if not utterance.paused:
            for frame, position in self._camera.take(self._context.now()):
                utterance.add_frame(frame, position)

    def _drop_turn(self) -> None:
        self._overlap = None
        self._held.clear()
        utterance = self._utterance
        self._utterance = None
        if utterance is not None:
            self._emit(TurnDropped())
            utterance.close()
