"""Turns that the client commits itself, as with a push-to-talk key."""

from __future__ import annotations

import numpy as np

from app.realtime.input import turn_events
from app.realtime.input.open_turn import OpenTurn
from app.realtime.input.speculation import Speculation
from app.realtime.input.turn_config import manual_config
from app.realtime.input.turn_detector import TurnDetector, VoicePaused, VoiceResumed, VoiceStarted, VoiceStopped
from app.realtime.protocol import SessionOptions
from app.realtime.session_context import SessionContext
from engine import MIC_RATE_HZ
from engine.core import Pcm

KEPT = MIC_RATE_HZ
"""Samples that stay in the buffer while nobody speaks: the first word may have begun in them."""


class ManualTurn:
    """Buffers audio until the client commits it; ``options`` are the session's.

    A voice detector finds when to prepare a response, and when to begin it in a pause. It ends no turn.
    """

    def __init__(
        self, context: SessionContext, options: SessionOptions, turn: OpenTurn, speculation: Speculation
    ) -> None:
        self.options = options
        self._turn = turn
        self._turns = context.turns
        self._speculation = speculation
        self._detector = TurnDetector(manual_config(context.turns, speculation), context.vad())
        self._voiced = False  # whether somebody has spoken in the turn
        self._refused = False

    def reset(self) -> None:
        """Reset for the next turn, after this one was committed or dropped."""
        self._detector.reset()
        self._voiced = False
        self._refused = False

    def has_room(self, samples: int) -> bool:
        """Open a turn if none is open. Return whether the given number of samples fits into it.

        A full buffer in which nobody has spoken starts anew. Raises Refusal for the first samples that do not fit.
        """
        utterance, last = self._turn.utterance, np.zeros(0, np.int16)
        if utterance is not None and self._starts_anew(utterance.samples, samples):
            last = utterance.pcm[-KEPT:].copy()
            utterance.close()
            utterance = None
        if utterance is None:
            utterance = self._turn.begin(self._turn.recent.position - len(last), last)
        fits = utterance.samples + samples <= self._turn.limit
        if self._refused and not fits:
            return False
        self._refused = not fits
        utterance.check_room(samples)
        return True

    def feed(self, pcm: Pcm, clean: Pcm) -> None:
        """Look for a voice in int16 [samples] ``pcm``, and buffer the same audio without noise."""
        utterance = self._turn.utterance
        if utterance is None:
            return
        self._turn.recent.push(clean, 0)
        utterance.push(clean)
        if not self.options.can_respond:
            return
        for event in self._detector.feed(pcm):
            match event:
                case VoiceStarted():
                    self._voiced = True
                    self._turn.emit(turn_events.VoiceBuffered(utterance))
                case VoicePaused():
                    self._turn.emit(turn_events.TurnPaused())
                case VoiceResumed():
                    self._turn.emit(turn_events.TurnResumed())
                    self._turn.show()
                case VoiceStopped():  # not by any silence: the client says so
                    pass
        self._detector.config = manual_config(self._turns, self._speculation)

    def _starts_anew(self, held: int, samples: int) -> bool:
        limit = self._turn.limit
        return self.options.can_respond and not self._voiced and samples + KEPT <= limit < held + samples
