"""The input side of a session: samples come in, turns come out, found by voice activity or committed by hand.

Knows no wire format and no engine; it tells the answers when the user speaks and when he has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from app.images import image_of_url
from app.media import MediaError
from app.realtime import notices
from app.realtime.answers import Answers
from app.realtime.commands import See
from app.realtime.conversation import Conversation
from app.realtime.endpoint import Moment, fall
from app.realtime.formats import LONG_BYTES, Decoder, rate_of, sample_count
from app.realtime.hearing import Recent, Turn
from app.realtime.house import House
from app.realtime.items import Heard, MessageItem
from app.realtime.options import Options, SemanticVad, ServerVad
from app.realtime.playout import Packet
from app.realtime.sight import MAX_FRAME_BYTES, Sight
from app.realtime.trouble import Refusal
from app.realtime.turns import (
    SpeechPaused,
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnConfig,
    TurnEvent,
    Turns,
)
from app.slices import LoopTime
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.core import Pcm
from engine.resampler import Resampler

STEP = 512
"""Samples that are judged at once: a chunk of the voice activity detector, 32 ms."""

HAND_PAUSE_MS = 1000
"""While the user holds a key, an answer is begun after so much silence at the latest."""

NEVER_MS = 24 * 3_600_000
"""More than any session lasts."""

SHORTEST_S = 0.1
"""The protocol's least audio for a commit."""


class Microphone:
    """One session's input audio buffer."""

    def __init__(
        self,
        answers: Answers,
        conversation: Conversation,
        house: House,
        options: Options,
        tell: Callable[[notices.Notice], None],
        loop_time: LoopTime,
    ) -> None:
        self._answers, self._conversation, self._house, self._tell = answers, conversation, house, tell
        self._options = options
        self._loop_time = loop_time
        self.sight = Sight(house.camera_every_s)
        self._limit = int(house.limits.audio_s * MIC_RATE_HZ)
        self._decoder = Decoder(options.audio.input.format)
        self._echo = Resampler(SPEAKER_RATE_HZ, MIC_RATE_HZ)
        self._recent = Recent()
        self._turn: Turn | None = None
        self._detector = Turns(vad=house.vad())
        self._detector_start = 0  # the session's position at which the detector began to count
        self._falling = 0.0  # how the user's voice ended before the present pause
        self._quiet_from: int | None = None  # where the listener had heard the last answer; None while somebody speaks
        self.configure(options)

    def configure(self, options: Options) -> None:
        """Take new settings; turn detection that is switched on or off forgets the turn it was in."""
        before, self._options = self._options, options
        format, detection = options.audio.input.format, options.audio.input.turn_detection
        if format != before.audio.input.format:
            self._decoder = Decoder(format)
        if (detection is None) != (before.audio.input.turn_detection is None):
            self._drop_turn()
            self._detector = Turns(vad=self._house.vad())
            self._detector_start = self._recent.position
        self._tune()

    @property
    def _by_hand(self) -> bool:
        """Whether the client says when a turn is over."""
        return self._options.audio.input.turn_detection is None

    async def append(self, data: bytes) -> None:
        """Hear bytes in the session's format.

        Long ones are decoded and heard piece by piece: other sessions get their turn, and memory is for one piece.
        """
        if len(data) <= LONG_BYTES:
            await self.hear(self._decoder.push(data))
            return
        format = self._options.audio.input.format
        self._check_room(sample_count(data, format) * MIC_RATE_HZ // rate_of(format))
        for at in range(0, len(data), LONG_BYTES):
            push = partial(self._decoder.push, data[at : at + LONG_BYTES])
            await self.hear(await self._house.slices.aside(push))

    async def hear(self, pcm: Pcm) -> None:
        """Hear int16 [samples] at MIC_RATE_HZ."""
        self._check_room(len(pcm))
        self._loop_time.begin()
        for at in range(0, len(pcm), STEP):
            self._hear(pcm[at : at + STEP])
            await self._loop_time.pause()

    def _check_room(self, samples: int) -> None:
        """Raises Refusal if so many more do not fit into a turn that the client ends."""
        if self._by_hand:
            self._turn = self._turn or Turn(self._limit)
            self._turn.check_room(samples)

    def commit(self) -> None:
        """The turn is over because the client says so; it asks for an answer itself."""
        if self._turn is None or self._turn.seconds < SHORTEST_S:
            held_ms = 0 if self._turn is None else round(self._turn.seconds * 1000)
            message = f"A turn needs {SHORTEST_S * 1000:.0f} ms of audio; the buffer holds {held_ms} ms."
            raise Refusal("input_audio_buffer_commit_empty", message)
        self._detector.reset()
        self._commit(self._turn, respond=False)

    async def look(self, url: str) -> None:
        """See a picture of the client's camera, if one is due. Raises MediaError."""
        if self.sight.due(self._house.now()):
            image = await self._house.slices.read(partial(image_of_url, url), len(url))
            if image.size > MAX_FRAME_BYTES:
                raise MediaError(f"a camera's picture has at most {MAX_FRAME_BYTES // 3_000_000} million pixels")
            self.see(See(await self._house.slices.aside(image.decode), url))

    def see(self, frame: See) -> None:
        """A picture of the client's camera: it joins the turn that is spoken, or the next one."""
        self.sight.see(frame, self._house.now())

    def clear(self) -> None:
        """Forget what was said since the last turn."""
        self._drop_turn()
        self._recent.clear()
        self._detector.reset()
        self._tell(notices.AudioCleared())

    def forget(self) -> None:
        """The session is over: nothing of what was heard and seen is needed any more."""
        self._turn = None
        self._recent.clear()
        self.sight.forget()

    def playing(self, packet: Packet) -> None:
        """The listener hears this now, or after what he was sent before: its echo is not the user."""
        if not self._by_hand:
            pcm = (np.clip(packet.samples, -1, 1) * 32767).astype(np.int16)
            self._detector.playing(self._echo.push(pcm))

    def hushed(self) -> None:
        """Nothing of what was not yet played will be."""
        self._detector.stopped()

    def answered(self, left_s: float) -> None:
        """The answer is over, and heard in ``left_s`` seconds: from then on the user may be silent for too long."""
        self._quiet_from = self._recent.position + round(left_s * MIC_RATE_HZ)

    def _tune(self) -> None:
        """Set the detector by the session's settings, by what the user said, and by how the session's guesses went."""
        detection, house, guesses = self._options.audio.input.turn_detection, self._house.turns, self._answers.guesses
        if detection is None:  # it only tells when to listen, and when to begin an answer: no silence ends the turn
            self._detector.config = TurnConfig(
                silence_duration_ms=NEVER_MS,
                min_speech_ms=house.min_speech_ms,
                echo_guard=False,
                pause_ms=guesses.pause_ms(HAND_PAUSE_MS) if house.guess_ms else NEVER_MS,
            )
            return
        silence_ms = self._silence_ms(detection)
        self._detector.config = TurnConfig(
            detection.threshold,
            detection.prefix_padding_ms,
            silence_ms,
            house.min_speech_ms,
            house.echo_guard,
            guesses.pause_ms(silence_ms) if self._options.responds else silence_ms,
        )

    def _silence_ms(self, detection: ServerVad | SemanticVad) -> int:
        """The silence that ends the turn, as things stand."""
        match detection:
            case ServerVad(silence_duration_ms=silence_ms):
                return silence_ms
            case SemanticVad():
                turn = self._turn
                said = Moment() if turn is None else Moment(turn.so_far, self._falling, turn.whole, turn.listening)
                return self._house.judge.silence_ms(said, detection.waits)

    def _hear(self, pcm: Pcm) -> None:
        if not self._by_hand:
            self._hear_turns(pcm)
        elif self._turn is not None:
            self._recent.push(pcm, 0)
            self._turn.push(pcm)
            self._listen_along(self._turn, pcm)

    def _listen_along(self, turn: Turn, pcm: Pcm) -> None:
        """A turn that is committed by hand is heard from its first voice on, and an answer is begun in its pauses."""
        if not self._options.answers:
            return
        for event in self._detector.feed(pcm):
            match event:
                case SpeechStarted():
                    self._look(turn)
                    self._answers.listen(turn, preemptible=True)
                case SpeechPaused():
                    self._look(turn)
                    self._answers.guess()
                case SpeechResumed():
                    self._answers.listen_on()
                case SpeechStopped():  # not by any silence: the client says so
                    pass
        self._tune()

    def _hear_turns(self, pcm: Pcm) -> None:
        config = self._detector.config
        keep_ms = config.prefix_padding_ms + config.min_speech_ms + 100
        self._recent.push(pcm, max(keep_ms * MIC_RATE_HZ // 1000, self._quiet_samples()))
        if self._turn is not None:
            self._push(self._turn, pcm)
            self._tune()  # more may have been understood
        for event in self._detector.feed(pcm):
            self._on_turn(event)
        self._mind_the_silence()

    def _quiet_samples(self) -> int:
        """How long nobody has spoken since the last answer, if that is to be minded."""
        detection = self._options.audio.input.turn_detection
        if self._quiet_from is None or detection is None or detection.idle_timeout_ms is None:
            return 0
        return max(0, self._recent.position - self._quiet_from) if self._options.responds else 0

    def _mind_the_silence(self) -> None:
        """After ``idle_timeout_ms`` without a word the silence itself becomes a turn, and is answered."""
        detection, quiet = self._options.audio.input.turn_detection, self._quiet_samples()
        if not quiet or self._turn is not None or self._answers.busy or detection is None:
            return
        if quiet < (detection.idle_timeout_ms or 0) * MIC_RATE_HZ // 1000:
            return
        turn, start = Turn(self._limit), self._recent.position - quiet
        turn.push(self._recent.since(start)[-self._limit :])
        end_ms = self._recent.position * 1000 // MIC_RATE_HZ
        self._tell(notices.SilenceEnded(turn.item_id, start * 1000 // MIC_RATE_HZ, end_ms))
        self._commit(turn, respond=True)

    def _push(self, turn: Turn, pcm: Pcm) -> None:
        """Append to the turn; one that has grown too long ends here, as if the user had paused."""
        if turn.samples + len(pcm) <= self._limit:
            turn.push(pcm)
            return
        self._detector.reset()
        self._stopped(turn, self._recent.position)

    def _on_turn(self, event: TurnEvent) -> None:
        detection = self._options.audio.input.turn_detection
        match event:
            case SpeechStarted(audio_start_ms=start_ms):
                turn = self._turn = Turn(self._limit)
                self._falling, self._quiet_from = 0.0, None
                start = self._detector_start + start_ms * MIC_RATE_HZ // 1000
                turn.push(self._recent.since(start))
                self._look(turn)
                self._tell(notices.SpeechBegan(turn.item_id, start * 1000 // MIC_RATE_HZ))
                if detection is not None and detection.interrupt_response:
                    self._answers.interrupt()
                if self._options.responds:
                    self._answers.listen(turn)
                else:
                    self._answers.transcripts.hear(turn)
            case SpeechPaused(speech_end_ms=end_ms):
                if self._turn is not None and isinstance(detection, SemanticVad):
                    silent = self._recent.position - self._detector_start - end_ms * MIC_RATE_HZ // 1000
                    self._falling = fall(self._turn.pcm[: self._turn.samples - silent])
                if self._turn is not None:
                    self._look(self._turn)
                self._answers.guess()
            case SpeechResumed():
                self._falling = 0.0
                self._answers.listen_on()
                self._tune()
            case SpeechStopped(audio_end_ms=end_ms, speech_end_ms=speech_end_ms):
                if self._turn is not None:
                    self._turn.silence_ms = end_ms - speech_end_ms
                    self._stopped(self._turn, self._detector_start + end_ms * MIC_RATE_HZ // 1000)
                    self._tune()

    def _stopped(self, turn: Turn, position: int) -> None:
        self._tell(notices.SpeechEnded(turn.item_id, position * 1000 // MIC_RATE_HZ))
        self._commit(turn, respond=self._options.responds)

    def _commit(self, turn: Turn, respond: bool) -> None:
        """The turn becomes an item. If the conversation has no room for it, it is dropped."""
        if not turn.paused:  # else its answer is under way, and may have been made of what was seen by then
            self._look(turn)
        item = MessageItem(id=turn.item_id, role="user", content=(*turn.seen, Heard(turn.heard)))
        try:
            previous = self._conversation.add(item)
        except Refusal:
            self._drop_turn()
            raise
        self._turn = self._quiet_from = None
        self.sight.forget()
        self._tell(notices.AudioCommitted(item.id, previous))
        self._tell(notices.ItemAdded(item, previous))
        turn.close()
        if respond:
            self._answers.answer_turn(turn)
        else:
            self._answers.committed(turn)

    def _look(self, turn: Turn) -> None:
        """What the camera has seen by now is part of the turn."""
        turn.seen = self.sight.pictures(self._house.now())

    def _drop_turn(self) -> None:
        if self._turn is not None:
            self._turn.close()
            self._turn = None
            self._answers.stop_listening()
