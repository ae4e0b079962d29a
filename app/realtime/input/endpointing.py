"""The end of the user's turn: how long a silence ends it. A judge reads what was said so far, and how the voice ended.

A judge is a pure function of the moment: no clock, no socket, no model. ``SessionContext.judge`` is the one in use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from app.realtime.input.hesitations import ends_in_filler
from app.realtime.input.open_words import NEVER_END, only_language
from app.realtime.ports import Eagerness, EndpointingContext
from engine.core import MIC_RATE_HZ, Pcm

WAITS_MS: dict[Eagerness, tuple[int, int, int]] = {
    "high": (150, 400, 2_000),
    "medium": (200, 600, 4_000),
    "low": (600, 1_200, 8_000),
}
"""The wait after a complete sentence, where one can't say, and at the most (the protocol's 2, 4 and 8 s)."""


NO_REQUEST = -0.45
"""Words that are no request yet: half of one, and then more comes within a second; or what the ears do not know."""


class SentenceEndOfTurn:
    """A judge by four signs: the ASR's verdict on a whole request, its punctuation, the last English words, and the
    fall of the voice."""

    window_s = 0.0

    def listen(self, pcm: Pcm) -> float:
        """Return 0.5: this judge reads the words and the fall of the voice only."""
        return 0.5

    def probability(self, moment: EndpointingContext) -> float:
        return (1.0 + _certainty(moment)) / 2

    def silence_ms(self, moment: EndpointingContext, eagerness: Eagerness) -> int:
        short, middle, longest = WAITS_MS[eagerness]
        certainty = _certainty(moment)
        end = short if certainty > 0 else longest
        return round(middle * (end / middle) ** abs(certainty))


def _certainty(moment: EndpointingContext) -> float:
    """Return how certain it is that the turn is over: 1; that it will go on: -1."""
    match moment.whole:
        case True:
            # One word may be the first of many.
            return 1.0 if " " in moment.words else max(completeness(moment.words, moment.languages), NO_REQUEST)
        case False:
            return min(completeness(moment.words, moment.languages), NO_REQUEST)
        case None:
            sounds = completeness(moment.words, moment.languages) + 0.35 * moment.falling
            return max(-1.0, min(0.0 if moment.listening else 1.0, sounds))


def completeness(words: str, languages: Sequence[str] = ("en",)) -> float:
    """Return how complete a sentence is: 1 is complete, -1 will go on, 0 is unclear.

    A full stop or question mark of the ASR outweighs the word lists. It is no proof: Whisper also writes one after a
    third of the clips that stop within a sentence. So a full stop after a word that often goes on counts only a little.
    The word lists depend on the ``languages`` (BCP 47) of the ASR: English where it knows several, and most of them
    are English only.
    """
    text = words.strip().rstrip(_CLOSING).lower()
    language = only_language(languages) or "en"
    spoken = _SPOKEN.findall(text) if language == "en" else _SPOKEN_ELSEWHERE.findall(text)
    unfinished = text.endswith(_UNFINISHED)
    mark = text[-1] if text.endswith(_ENDS) and not unfinished else ""
    if ends_in_filler(text, languages):
        return -1.0
    if not spoken:
        return 1.0 if mark else 0.0
    if unfinished or spoken[-1] in NEVER_END.get(language, ()):
        return -1.0
    if language == "en" and spoken[-1] in _GOES_ON:
        return _after_open_word(spoken, mark)
    if _number_goes_on(spoken) and mark != "?":
        return -0.8
    if mark:
        return 1.0
    if language != "en":
        return 0.2 if len(spoken) >= 4 else 0.0
    if spoken[0] in _ASKS and len(spoken) != 2:
        return 0.7 if len(spoken) > 2 else NO_REQUEST
    return 0.8 if len(spoken) <= 3 and text in _WHOLE else 0.2 if len(spoken) >= 4 else 0.0


def _after_open_word(spoken: list[str], mark: str) -> float:
    """Return the completeness of a sentence whose last word often goes on; ``mark`` is the punctuation after it."""
    if mark:
        return 0.7 if mark == "?" else 0.2
    return 0.2 if spoken[-1] in _MAY_END and spoken[0] in _ASKS and len(spoken) >= 4 else -1.0


def prosody_fall(pcm: Pcm) -> float:
    """Return how a voice ends: -1 (held) to 1 (sunk); from int16 [samples] at MIC_RATE_HZ that end where the voice
    does.

    A sentence's last half second loses loudness and pitch; one who means to go on holds both.
    """
    tail: Pcm = pcm[-_TAIL:]
    if len(tail) < _TAIL:
        return 0.0
    frames = np.divide(tail, 32768, dtype=np.float32).reshape(-1, _FRAME)
    power_db = 10 * np.log10(np.square(frames).mean(1) + 1e-9)
    half = len(frames) // 2
    sinks_db = float(power_db[:half].max() - power_db[-3:].mean())
    loudness = np.clip((sinks_db - 12) / 10, -1, 1)
    early, late = _pitch_hz(frames[:half].ravel()), _pitch_hz(frames[half:].ravel())
    if early is None or late is None:
        return float(loudness) / 2
    semitones = 12 * float(np.log2(early / late))
    return float(np.clip(0.5 * loudness + 0.5 * np.clip((semitones - 1) / 2, -1, 1), -1, 1))


_FRAME = MIC_RATE_HZ // 50  # 20 ms
_TAIL = _FRAME * 24  # the last 480 ms
_LAGS = slice(MIC_RATE_HZ // 400, MIC_RATE_HZ // 70)  # 70 to 400 Hz
_VOICED = 0.4  # the share of the energy that is repeated one period later


def _pitch_hz(wave: np.ndarray[tuple[int], np.dtype[np.float32]]) -> float | None:
    """Estimate the pitch by autocorrelation; None where the sound has none."""
    centred = wave - wave.mean()
    spectrum = np.fft.rfft(centred, 2 * len(centred))
    similar = np.fft.irfft(np.square(np.abs(spectrum)))[: len(centred)]
    if similar[0] <= 0:
        return None
    at = int(similar[_LAGS].argmax()) + _LAGS.start
    return MIC_RATE_HZ / at if similar[at] > _VOICED * similar[0] else None


def _number_goes_on(spoken: list[str]) -> bool:
    """Digits said one by one, too few of them for a number that is dictated; or a sum's sign without its end."""
    count = 0
    for word in reversed(spoken):
        if word not in _DIGITS and not re.fullmatch(r"\d", word):
            break
        count += 1
    return 2 <= count < 7


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPOKEN = re.compile(r"[a-z0-9']+(?:\.[0-9]+)?|[+*/×÷]")
_SPOKEN_ELSEWHERE = re.compile(r"[^\W_]+(?:[-.'’][^\W_]+)*")
"""Words of other languages. A pronoun after a hyphen belongs to its verb ("prends-le")."""
_CLOSING = "\"')]}”’»"
_UNFINISHED = ("...", "…", ",", "-", "–", "—")
_ENDS = (".", "?", "!", "。", "？", "！", "؟", "।")
_DIGITS = _words("zero oh one two three four five six seven eight nine")
_GOES_ON = _words(
    "like well so because when while that which who whose this his her some any of to for with from in on at by about"
    " into over under between is are was were be am will would can could should may might must do does did have has had"
    " not very too plus minus times divided hundred thousand i we they he she called named say spell repeat please"
)
_MAY_END = _words("do does did name called please for with from in on at by about to")
"""Words among these that a question may end in, as "where do you come from"."""
_ASKS = _words(
    "what who where when why how which is are do does did can could would will should tell say spell repeat give show"
    " please add subtract"
)
_WHOLE = frozenset(
    {"yes", "no", "hello", "hi", "thanks", "thank you", "goodbye", "bye", "stop", "good morning", "good night", "okay"}
)
