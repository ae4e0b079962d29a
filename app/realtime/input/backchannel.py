"""Speech over an answer: a turn that ends it, or a listener's word ("mm-hm", "I see"), after which it goes on.

The answer is held as soon as somebody speaks, and what they say is judged once they pause: by the ears' words, or by
its length where the ears are not sure of any. Speech that goes on is a turn. Positions are milliseconds of the
microphone's samples.
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
class Backchannel:
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
    """Whether words are what a listener says, and want no answer: many in English, some in other languages."""
    spoken = re.findall(r"[\w']+", words.lower().replace("-", "").replace("’", "'"))
    return _LISTENER.fullmatch(" ".join([*spoken, ""])) is not None


def _any(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


# What listeners say in the Switchboard Dialogue Act Corpus, without "no" and what may be meant as a stop: its part
# "train" chose the words, and `python -m benchmarks.overlaps --dialogues FOLDER` counts how much of each kind of
# utterance is taken for a listener's. What has been read stays read, the longest first, or many words would take for
# ever.
_BEFORE = _any("um uh er so and but")
_SINGLE = _any(
    "m mm mmm mhm mmhm mmhmm umhum hm hmm hum uhhuh uhuh aha ah oh ooh huh wow gosh goodness gee jeez boy"
    " yeah yea yep yup yes ya okay ok right alright sure really indeed absolutely totally definitely certainly exactly"
    " precisely naturally obviously agreed understood gotcha well"
)
_OTHERS = _any(  # no corpus chose these
    "ja jaja jo genau stimmt klar verstehe richtig achso oui ouais voilà exactement si sí claro vale ajá exacto sim"
    " certo isso ecco esatto capisco klopt precies да ага угу понятно 네 응 음 맞아요 그렇군요"
    " 嗯 嗯嗯 对 对对 是的 好的 哦 はい うん うんうん ええ そうですね なるほど"
)
_GOOD = _any(
    "true good great nice cool fine correct perfect neat interesting amazing awesome excellent lovely wonderful"
    " fantastic fascinating incredible impressive terrific brilliant beautiful marvelous unbelievable exciting"
)
_ODD = _any("right fair fun funny sad awful terrible horrible tough hard scary strange weird wild crazy something bad")
_VERY = _any("so very really pretty quite exactly certainly probably too all just absolutely definitely")
_VERB = _any("is was does did do are")
_MY = _any("god gosh goodness word")
_PHRASE = "|".join(
    (
        f"(?:(?:that|this|it)(?:'s| is| was| sounds| would be)|sounds) (?:{_VERY} )*(?:{_GOOD}|{_ODD})",
        f"(?:how|very|pretty) (?:{_GOOD}|fun|funny)", "(?:that's )?for sure", "(?:that |it )?makes sense",
        "(?:that's )?a (?:good|great) (?:idea|point|question)", "(?:good|nice) (?:point|job|one|for you)",
        f"(?:it|they|that) (?:(?:really|sure|certainly) {_VERB}|is|does)", f"oh (?:dear|man|my(?: {_MY})?)",
        "i(?: can)? (?:see|imagine|believe it|understand)", "i do(?: too)?", "i (?:bet|get it|guess so|think so)",
        "i (?:know|agree)(?: it| that| with (?:you|that))?", "i(?:'m sure|'ll bet)", "i think (?:that's|you're) right",
        "you bet", "you(?:'re| are) (?:right|kidding)", "me too", "same here", "got (?:it|you)", "fair enough", "go on",
        "no (?:way|kidding|wonder|doubt)", "is that (?:right|so)", "are you serious", "there you go", "how about that",
        "all right", "of course", "keep going", "well done", f"my {_MY}",
    )
)  # fmt: skip
_LISTENER = re.compile(f"(?:(?:{_BEFORE} )*+(?>(?:{_PHRASE}|{_GOOD}|{_SINGLE}|{_OTHERS}) ))*+")
