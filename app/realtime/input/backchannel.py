"""Speech over an answer: a turn that ends it, or a backchannel ("mm-hm", "I see"), after which the answer goes on.

The answer is held as soon as the user speaks. Their words decide while they speak, and again once they pause. Without
certain words the length decides. Positions are milliseconds of the microphone's samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.realtime.conversation import Utterance
from app.realtime.input.backchannel_phrases import read
from app.realtime.input.turn_detector import VoiceEvent, VoicePaused, VoiceResumed, VoiceStarted, VoiceStopped

HOLD_MS = 192
"""Milliseconds of speech over an answer that may be a turn. Shorter sounds, such as a cough, are ignored."""

WORDS_MS = 550
"""Milliseconds of speech after which interim words can show that it is a turn. ASR models guess at shorter sounds."""

SHORT_MS = 300
"""Speech without certain words is a backchannel if it is no longer. A longer limit lets more backchannels pass, and
misses interruptions such as "stop" or "wait" (benchmarks/overlaps.py)."""

PATIENCE_MS = 400
"""Milliseconds of silence within which the ASR model reports the words; then the length decides."""


@dataclass(slots=True)
class Backchannel:
    """Speech over an answer, from its first voice at ``start_ms``."""

    start_ms: int
    longest_ms: int
    """Speech that lasts longer is a turn, whatever its words."""
    end_ms: int | None = None
    """The end of the voice before the present pause; None while the user speaks."""

    def follow(self, event: VoiceEvent) -> None:
        """Follow the turn detector."""
        match event:
            case VoicePaused(speech_end_ms) | VoiceStopped(_, speech_end_ms):
                self.end_ms = speech_end_ms
            case VoiceStarted() | VoiceResumed():
                self.end_ms = None

    def is_turn(self, utterance: Utterance, now_ms: int) -> bool | None:
        """Return whether it is a turn; None if that is not known yet."""
        if self.end_ms is None:
            spoken_ms = now_ms - self.start_ms
            return True if spoken_ms > self.longest_ms or _interrupts(utterance, spoken_ms) else None
        if utterance.confident is None and now_ms - self.end_ms < PATIENCE_MS:
            return None
        if utterance.confident:
            if utterance.final_words and read(utterance.final_words).is_backchannel:
                return False
            if utterance.whole is not False:
                return bool(utterance.words)
        return self.end_ms - self.start_ms > SHORT_MS


def _interrupts(utterance: Utterance, spoken_ms: int) -> bool:
    """Return whether the interim words can no longer become a backchannel."""
    return spoken_ms >= WORDS_MS and utterance.interim_confident and not read(utterance.so_far).may_become_one
