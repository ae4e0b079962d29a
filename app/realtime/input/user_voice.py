"""Whose voice speaks: the speaker gate judges it as it begins, and a turn may get a label after it."""

from __future__ import annotations

from app.realtime.conversation import Utterance
from app.realtime.input import turn_events
from app.realtime.input.open_turn import OpenTurn
from app.realtime.input.speaker_gate import SpeakerGate
from app.realtime.input.speaker_labels import SpeakerLabels
from app.realtime.input.turn_config import Speaker
from app.realtime.session_context import SessionContext
from engine.core import Pcm


class UserVoice:
    """The voices of one session's turns. Positions are samples of the session."""

    def __init__(self, context: SessionContext, turn: OpenTurn) -> None:
        self.speaker: Speaker = ("any", None)
        """Whose speech opens a turn."""
        self.start = 0
        """Where the voice of the open turn began."""
        self._encoder = context.speaker_encoder
        self._turn = turn
        self._gate = SpeakerGate(context.inference)
        self._labels = SpeakerLabels(context.inference)

    @property
    def is_judging(self) -> bool:
        """Whether a voice is under judgement."""
        return self._gate.is_judging

    def configure(self, speaker: Speaker) -> None:
        """Take the voices that may open turns."""
        self.speaker = speaker
        self._gate.configure(self._encoder, *speaker)

    def begin(self, start: int) -> bool:
        """Begin a turn's voice. Return False if it passes without a judgement."""
        self.start = start
        return self._gate.begin(start)

    def close(self) -> None:
        """End the judgement of a voice."""
        self._gate.close()

    def is_user(self, said: Utterance, end: int, paused: bool) -> bool | None:
        """Return whether the voice, which has spoken up to ``end``, may open a turn; None if that is not known yet."""
        return self._gate.is_user(end, paused, lambda: self._speech(said, end))

    def turn_ended(self, said: Utterance, end: int, labels: bool) -> None:
        """Learn the user's voice from a turn. With ``labels``, also find out which voice spoke it."""
        if self._encoder is not None and (labels or self._gate.is_learning):
            speech = self._speech(said, end)
            self._gate.heard(speech)
            if labels:
                self._labels.ask(self._encoder, said.item_id, speech)

    def report(self) -> None:
        """Emit the labels that are known by now."""
        for item_id, speaker in self._labels.found():
            self._turn.emit(turn_events.SpeakerFound(item_id, speaker))

    def _speech(self, said: Utterance, end: int) -> Pcm:
        """Return int16 [samples] of the turn, from the voice's start or the turn's to ``end``."""
        last = said.samples - (self._turn.recent.position - end)
        return said.pcm[max(0, last - (end - self.start)) : last]
