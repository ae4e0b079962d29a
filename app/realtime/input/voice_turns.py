"""Turns found by voice activity: their start, their end, speech over a response, and a silence that lasts too long."""

from __future__ import annotations

from dataclasses import replace

from app.realtime.conversation import Utterance
from app.realtime.input import turn_events
from app.realtime.input.answer_playback import AnswerPlayback
from app.realtime.input.backchannel import HOLD_MS, PATIENCE_MS, Backchannel
from app.realtime.input.echo_cancellation import EchoCancellation
from app.realtime.input.echo_guard import EchoGuard
from app.realtime.input.endpointing import prosody_fall
from app.realtime.input.idle_pause import IdlePause
from app.realtime.input.open_turn import OpenTurn
from app.realtime.input.pause_sound import ASK_MS, PauseSound
from app.realtime.input.speculation import Speculation
from app.realtime.input.turn_config import speaker_of, turn_config
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
from app.realtime.input.turn_outcomes import TurnOutcomes
from app.realtime.input.user_voice import UserVoice
from app.realtime.input.wait_tuner import WaitTuner
from app.realtime.ports import EndOfTurnModel, EndpointingContext
from app.realtime.protocol import SemanticVad, SessionOptions
from app.realtime.session_context import SessionContext
from app.realtime.speech_hints import spoken_languages
from engine import MIC_RATE_HZ
from engine.core import Pcm, Wave


class VoiceTurns:
    """The voice turns of one session. Speech over a response is a turn only if it is no backchannel."""

    def __init__(
        self,
        context: SessionContext,
        options: SessionOptions,
        turn: OpenTurn,
        speculation: Speculation,
        echo: EchoCancellation,
    ) -> None:
        self._context = context
        self._options = options
        self._turn = turn
        self._speculation = speculation
        self._overlap: Backchannel | None = None  # speech over a response, until it is known whether it is a turn
        self._echo = echo
        self.playback = AnswerPlayback(turn, echo)
        self._falling = 0.0  # the fall of the user's voice before the present pause
        self._pause_end_ms = 0  # the end of the voice before the latest pause
        self._is_paused = False
        self._voice = UserVoice(context, turn)
        self._idle = IdlePause(context.idle)
        self._sound = PauseSound(context.inference, context.now)
        self._outcomes = TurnOutcomes(lambda kind: context.metrics.turns.labels(kind).inc())
        self.restart()

    def restart(self) -> None:
        """Begin with a new detector: turn detection was switched on."""
        self._overlap = None
        self._voice.close()
        guard = EchoGuard(self._echo.playback, self._echo.position) if self._context.turns.echo_guard else None
        self._detector = TurnDetector(vad=self._context.vad(), guard=guard)
        self._detector_start = self._turn.recent.position  # the session's position at the detector's first sample

    def configure(self, options: SessionOptions) -> None:
        self._options = options
        self._languages = spoken_languages(options, self._context.engine.model)
        if (model := self._model) is not None:
            self._context.inference.warm_up(model)
        self._set_speaker()
        self._set_target()
        self._tune()

    def feed(self, pcm: Pcm, clean: Pcm) -> None:
        """Find turns in int16 [samples] ``pcm``; the turns hold the same audio without noise."""
        config, turn = self._detector.config, self._turn
        keep_ms = config.prefix_padding_ms + max(config.min_speech_ms, HOLD_MS) + 100
        turn.recent.push(clean, max(to_samples(keep_ms), self._quiet_samples()))
        if turn.utterance is not None:
            self._push(turn.utterance, clean)
        changed = config.overlap_ms != self._hold_ms or config.echo_gain_db != self._echo_gain_db
        if turn.utterance is not None or changed:
            self._tune()  # more may have been understood, a response has begun or ended, or an echo was found
        for event in self._detector.feed(pcm):
            if self._overlap is not None:
                self._overlap.follow(event)
            self._on_voice(event)
        self._judge_voice()
        self._voice.report()
        self._follow_pause()
        self._weigh(to_ms(self._detector.position))
        self._check_idle()
        speaks = turn.utterance is not None and not self._voice.is_judging
        if self._idle.falls_asleep(turn.recent.position, speaks):
            turn.emit(turn_events.SessionIdled())
            self._tune()

    def take_turn(self) -> None:
        """Treat the speech over a response as a turn."""
        self._overlap = None
        self._turn.quiet_from = None
        if self._turn.utterance is not None:
            self._turn.utterance.held = False
            self._turn.emit(turn_events.TurnStarted(self._turn.utterance, to_ms(self._turn.utterance.start)))

    def commit(self) -> None:
        """The open turn ends without a silence: a pending overlap is a turn, too."""
        self._admit_unjudged()
        self._detector.restart(self._context.vad())
        if self._overlap is not None:
            self.take_turn()

    def reset(self) -> None:
        """The open turn is dropped."""
        self._voice.close()
        if self._overlap is not None:
            self._overlap = None
            self._turn.quiet_from = None
        self._detector.restart(self._context.vad())

    def forget(self) -> None:
        """Free the last turns: the session is over."""
        self._outcomes.forget()

    def playing(self, samples: Wave) -> None:
        """The listener hears float32 [samples] at SPEAKER_RATE_HZ now, or after everything sent before."""
        self._outcomes.answer_sounds(self._context.now())
        self.playback.playing(samples)

    def response_started(self) -> None:
        """A response is under way: the user's silence does not count as idle time."""
        self._turn.quiet_from = None
        self._idle.response_started()
        self._wake()
        if self._speaks:
            self._outcomes.answer_began()

    def response_ended(self, left_s: float) -> None:
        """The listener hears the rest of the response for ``left_s`` seconds; then idle time begins."""
        self._outcomes.answer_ended()
        ends = self.playback.position + round(left_s * MIC_RATE_HZ)
        ends = round(self._context.measured("answer_ends", ends))
        self.playback.ends_at(ends)
        self._idle.response_ended(ends)

    def _wake(self) -> None:
        """End the pause of an idle session."""
        if self._idle.wakes():
            self._turn.emit(turn_events.SessionWoken())
            self._tune()

    def _tune(self) -> None:
        """Set the detector by the session's settings, the user's words so far, and earlier speculation's success."""
        detection, said = self._options.audio.input.turn_detection, self._turn.utterance
        if detection is None:
            return
        moment = EndpointingContext() if said is None else self._moment(said)
        self._detector.config = turn_config(
            detection,
            self._options,
            self._context,
            self._speculation,
            moment,
            self._hold_ms,
            self._wait_factor,
            self._echo_gain_db,
        )
        if (threshold := self._idle.wake_threshold) is not None:
            self._detector.config = replace(self._detector.config, threshold=threshold)

    def _set_speaker(self) -> None:
        """Take the voices that may open turns."""
        speaker = speaker_of(self._options, self._context)
        if speaker != self._voice.speaker:
            self._admit_unjudged()
            self._voice.configure(speaker)

    def _set_target(self) -> None:
        """Begin or end the tuning of waits to the speaker."""
        detection = self._options.audio.input.turn_detection
        target = detection.target_cuts if isinstance(detection, SemanticVad) else None
        tuner = self._outcomes.tuner
        if target is None:
            self._outcomes.tuner = None
        elif tuner is None or tuner.target != target:
            self._outcomes.tuner = WaitTuner(target)

    @property
    def _echo_gain_db(self) -> float:
        """Level of the loudest possible echo relative to the playback."""
        return self._echo.gain_db or 0.0

    @property
    def _speaks(self) -> bool:
        """Whether answers have sound."""
        return "audio" in self._options.output_modalities

    @property
    def _wait_factor(self) -> float:
        return 1.0 if self._outcomes.tuner is None else self._outcomes.tuner.factor

    @property
    def _untuned_wait_ms(self) -> float:
        return self._detector.config.silence_duration_ms / self._wait_factor

    @property
    def _hold_ms(self) -> int:
        """Milliseconds of speech that hold the answer until it is clear whether it is a turn; 0 if any is."""
        detection = self._options.audio.input.turn_detection
        if detection is None or not self.playback.is_heard:
            return 0
        interrupts = detection.interrupt_response and self._options.auto_responds
        return min(HOLD_MS, detection.backchannel_ms) if interrupts else 0

    @property
    def _model(self) -> EndOfTurnModel | None:
        """The end-of-turn model in use; None if a fixed silence or the client ends turns."""
        detection = self._options.audio.input.turn_detection
        return self._context.end_of_turn_model(detection.end_of_turn) if isinstance(detection, SemanticVad) else None

    def _moment(self, said: Utterance) -> EndpointingContext:
        sound, sound_due = self._sound.read()
        return EndpointingContext(
            said.so_far,
            self._falling,
            said.whole,
            said.listening,
            heard=said.confident is not None,
            sound=sound,
            sound_due=sound_due,
            languages=self._languages,
        )

    def _follow_pause(self) -> None:
        """Ask the end-of-turn model about a new pause, and drop its judgement once the user goes on."""
        model, said = self._model, self._turn.utterance
        if model is None or not model.window_s or said is None:
            self._sound.forget()
            return
        window = round(model.window_s * MIC_RATE_HZ)
        self._sound.follow(model, self._detector.pause_from(ASK_MS), lambda: said.pcm[-window:])

    def _push(self, utterance: Utterance, pcm: Pcm) -> None:
        """Append to the turn. One that has grown too long ends here, as if the user had paused."""
        if utterance.samples + len(pcm) <= self._turn.limit:
            utterance.push(pcm)
            return
        self.commit()
        self._turn.end(turn_events.TurnStopped(utterance, to_ms(self._turn.recent.position)))

    def _on_voice(self, event: VoiceEvent) -> None:
        turn = self._turn
        match event:
            case VoiceStarted(audio_start_ms=start_ms):
                self._begin(self._detector_start + to_samples(start_ms))
            case VoicePaused(speech_end_ms=end_ms):
                self._pause_end_ms = end_ms
                self._is_paused = True
                if turn.utterance is not None:
                    self._judge_fall(turn.utterance, end_ms)
                if not self._voice.is_judging:
                    turn.emit(turn_events.TurnPaused())
            case VoiceResumed():
                if self._outcomes.tuner is not None:
                    pause_ms = to_ms(self._detector.position) - self._pause_end_ms
                    self._outcomes.tuner.add_pause(pause_ms, self._untuned_wait_ms)
                self._falling = 0.0
                self._is_paused = False
                if not self._voice.is_judging:
                    turn.emit(turn_events.TurnResumed())
                turn.show()
                self._tune()
            case VoiceStopped(audio_end_ms=end_ms, speech_end_ms=speech_end_ms):
                self._pause_end_ms = speech_end_ms
                self._is_paused = True
                self._judge_voice()
                self._admit_unjudged()
                self._weigh(end_ms + PATIENCE_MS)  # it is over: what is known has to do
                if turn.utterance is not None:
                    turn.utterance.silence_ms = end_ms - speech_end_ms
                    self._end(turn.utterance, end_ms)

    def _end(self, said: Utterance, end_ms: int) -> None:
        """End the turn, with what is known about its end."""
        said.over_probability = self._over_probability(said)
        answered = self._options.auto_responds and self._speaks
        self._outcomes.turn_ended(said, self._context.now(), self._untuned_wait_ms, answered)
        said.turn_counts = self._outcomes.report
        end = self._detector_start + to_samples(self._pause_end_ms)
        self._voice.turn_ended(said, end, self._options.parley.speakers)
        self._turn.end(turn_events.TurnStopped(said, to_ms(self._detector_start + to_samples(end_ms))))
        self._tune()

    def _begin(self, start: int) -> None:
        """Begin a turn at a sample of the session. Whether it is one may depend on the voice."""
        self._falling = 0.0
        self._is_paused = False
        config, utterance = self._detector.config, self._turn.begin(start, self._turn.recent.since(start))
        voiced_ms = max(config.min_speech_ms, config.overlap_ms)
        if self._voice.begin(self._detector_start + self._detector.position - to_samples(voiced_ms)):
            utterance.held = True
            self._turn.emit(turn_events.VoiceBuffered(utterance))
        else:
            self._admit(utterance)

    def _admit(self, utterance: Utterance) -> None:
        """Accept the voice: its speech is a turn, unless it is a backchannel."""
        self._wake()
        self._outcomes.turn_began(utterance, self._context.now(), self.playback.is_heard)
        detection, hold_ms = self._options.audio.input.turn_detection, self._detector.config.overlap_ms
        if detection is not None and hold_ms:
            start_ms = to_ms(self._voice.start - self._detector_start)
            end_ms = self._pause_end_ms if self._is_paused else None
            self._overlap = Backchannel(start_ms, detection.backchannel_ms, end_ms)
            utterance.held = True
            self._turn.emit(turn_events.OverlapStarted(utterance))
        else:
            self.take_turn()

    def _judge_voice(self) -> None:
        """Decide whether the voice is one that may open a turn, once that can be known."""
        utterance = self._turn.utterance
        if utterance is None or not self._voice.is_judging:
            return
        end = self._detector_start + (to_samples(self._pause_end_ms) if self._is_paused else self._detector.position)
        match self._voice.is_user(utterance, end, self._is_paused):
            case True:
                self._admit_unjudged()
                if self._is_paused:
                    self._turn.emit(turn_events.TurnPaused())
            case False:
                self._voice.close()
                self._detector.dismiss()
                self._turn.drop()
            case None:
                pass

    def _admit_unjudged(self) -> None:
        """Accept a voice that is under judgement."""
        if self._voice.is_judging and self._turn.utterance is not None:
            self._voice.close()
            self._admit(self._turn.utterance)

    def _over_probability(self, said: Utterance) -> float | None:
        """Return how likely the turn was over, by the model that ended it; None where a fixed silence did."""
        return None if self._model is None else self._model.probability(self._moment(said))

    def _judge_fall(self, utterance: Utterance, end_ms: int) -> None:
        """Measure how far the voice fell before the pause, if semantic turn detection is on."""
        if isinstance(self._options.audio.input.turn_detection, SemanticVad):
            silent = self._turn.recent.position - self._detector_start - to_samples(end_ms)
            self._falling = prosody_fall(utterance.pcm[: utterance.samples - silent])

    def _weigh(self, now_ms: int) -> None:
        """Decide whether the speech over a response is a turn, once it can be known or the response has been heard."""
        if self._overlap is None or self._turn.utterance is None:
            return
        match not self.playback.is_heard or self._overlap.is_turn(self._turn.utterance, now_ms):
            case True:
                self.take_turn()
            case False:
                self._outcomes.turn_dropped()
                self._overlap = None
                self._detector.reset()
                self._turn.drop()
            case None:
                pass

    def _quiet_samples(self) -> int:
        """Return how long nobody has spoken since the last response; 0 where no idle timeout is set."""
        detection, quiet_from = self._options.audio.input.turn_detection, self._turn.quiet_from
        if quiet_from is None or detection is None or detection.idle_timeout_ms is None:
            return 0
        return max(0, self._turn.recent.position - quiet_from) if self._options.auto_responds else 0

    def _check_idle(self) -> None:
        """Make a turn of the silence itself after ``idle_timeout_ms`` without a word."""
        detection, quiet, recent = self._options.audio.input.turn_detection, self._quiet_samples(), self._turn.recent
        if not quiet or self._turn.utterance is not None or detection is None:
            return
        if quiet < to_samples(detection.idle_timeout_ms or 0):
            return
        start = recent.position - quiet
        utterance = self._turn.begin(start, recent.since(start)[-self._turn.limit :])
        self._turn.end(turn_events.IdleTimedOut(utterance, to_ms(start), to_ms(recent.position)))
