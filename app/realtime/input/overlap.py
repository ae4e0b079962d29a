"""Speech over an answer: a turn that ends it, or a listener's word ("mm-hm", "I see"), after which it goes on.

The answer is held as soon as somebody speaks, and what they say is judged once they pause: by the ears' words, or by
its length where the ears are not sure of any. Speech that goes on is a turn. Knows no clock and no session: positions
are milliseconds of the microphone's samples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.realtime.conversation import Utterance
from app.realtime.input.turn_detector import VoiceEvent, VoicePaused, VoiceResumed, VoiceStarted, VoiceStopped

LONGEST_MS = 1000
"""Milliseconds after which speech is a turn, although it goes on: whoever speaks for longer wants an answer."""

SHORT_MS = 300
"""Speech of which the ears make nothing is a listener's word if it is no longer. A longer limit lets more of them pass,
and misses whoever says "stop" or "wait" (benchmarks/overlaps.py)."""

PATIENCE_MS = 400
"""The silence within which ears say what they have heard; then its length decides."""


@dataclass(slots=True)
class Overlap:
    """Speech over an answer, from its first voice at ``start_ms`` on."""

    start_ms: int
    end_ms: int | None = None
    """The end of the voice before the present pause; None while somebody speaks."""

    def follow(self, event: VoiceEvent) -> None:
        """Take what the turn detector has found."""
        match event:
            case VoicePaused(speech_end_ms) | VoiceStopped(_, speech_end_ms):
                self.end_ms = speech_end_ms
            case VoiceStarted() | VoiceResumed():
                self.end_ms = None

    def is_turn(self, utterance: Utterance, now_ms: int) -> bool | None:
        """Whether it is a turn; None if that can't be told yet."""
        if self.end_ms is None:
            return True if now_ms - self.start_ms > LONGEST_MS else None
        if utterance.confident is None and now_ms - self.end_ms < PATIENCE_MS:
            return None
        if utterance.confident:
            if utterance.final_words and is_back_channel(utterance.final_words):
                return False
            if utterance.whole is not False:
                return bool(utterance.words)
        return self.end_ms - self.start_ms > SHORT_MS


def is_back_channel(words: str) -> bool:
    """Whether words are what a listener says, and want no answer."""
    spoken = re.findall(r"[\w']+", words.lower().replace("-", ""))
    return all(one in _SINGLE for one in spoken) or " ".join(spoken) in _PHRASES


_HUMS = "m mm mmm mhm mmhm mmhmm hm hmm hum uhhuh uhuh aha ah oh ooh huh wow"
_WORDS = (
    "yeah yea yep yup yes ya okay ok right alright sure good great nice cool fine exactly true really indeed absolutely"
    " totally definitely well"
)
_SINGLE = frozenset(f"{_HUMS} {_WORDS}".split())
_PHRASES = frozenset(
    {
        "uh huh", "all right", "i see", "oh i see", "i know", "got it", "of course", "that's right", "that is right",
        "makes sense", "well done", "good job", "go on", "no way",
    }
)  # fmt: skip
