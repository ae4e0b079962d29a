"""An end-of-turn model that joins the sound of a turn, its words, and the fall of the voice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from app.realtime.input.endpointing import WAITS_MS, SentenceEndOfTurn, completeness
from app.realtime.input.smart_turn import WINDOW_S
from app.realtime.ports import Eagerness, EndpointingContext
from engine.core import Pcm

_MOST = 4.6
"""Log-odds of the sound beyond which more certainty counts no more: 99 %."""

_FINISHED = 0.7
"""Completeness of words from which they are taken for a whole sentence."""
_LONGEST_FINISHED = 2.0
"""The longest silence after whole sentences, as a multiple of the eagerness's middle wait: 1.2 s at `medium`."""
_LONGEST_UNCLEAR = 2.5
"""The longest silence where the words do not tell: 1.5 s at `medium`."""

Weights = tuple[float, float, float, float]
"""Of a logistic regression: the bias, the sound's log-odds, the voice's fall, and the words' completeness."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants that were fitted on recordings of people."""

    heard: Weights
    """Weights once the ASR has given all words up to the pause."""
    unheard: Weights
    """Weights before that."""
    centre: float
    """Log-odds at which the wait is the eagerness's middle one."""
    sure: float
    """Log-odds above the centre from which the wait is the shortest."""
    doubtful: float
    """Log-odds below the centre from which the wait is the longest."""


# `python -m benchmarks.turns --corpus DIR --fit` prints this.
FITTED = Fit(
    heard=(-2.41, 0.45, 2.37, 1.73),
    unheard=(-1.04, 0.43, 2.24, 0.0),
    centre=1.0,
    sure=0.5,
    doubtful=2.0,
)


class SoundModel(Protocol):
    """A model that judges sound alone."""

    def probability(self, pcm: Pcm) -> float:
        """Return how likely a turn is over that ends with int16 [samples] at MIC_RATE_HZ."""
        ...


class FusedEndOfTurn:
    """Joins a model's judgement of the sound with what the ASR wrote and how the voice fell.

    An ASR that knows what can be asked decides alone (``EndpointingContext.whole``). Without a judgement of the sound,
    the fixed silence decides, and unfinished words lengthen it.
    """

    window_s = float(WINDOW_S)

    def __init__(self, sound: SoundModel, fit: Fit = FITTED) -> None:
        self._sound = sound
        self._fit = fit
        self._words = SentenceEndOfTurn()

    def listen(self, pcm: Pcm) -> float:
        return self._sound.probability(pcm)

    def probability(self, moment: EndpointingContext) -> float:
        if moment.whole is not None or moment.sound is None:
            return self._words.probability(moment)
        return 1 / (1 + math.exp(-log_odds(moment, self._fit)))

    def silence_ms(self, moment: EndpointingContext, eagerness: Eagerness) -> int:
        if moment.whole is not None:
            return self._words.silence_ms(moment, eagerness)
        short, middle, longest = WAITS_MS[eagerness]
        bound = bound_ms(moment, eagerness)
        if moment.sound is None:
            return min(bound, max(middle, self._words.silence_ms(moment, eagerness)))
        beyond = log_odds(moment, self._fit) - self._fit.centre
        if beyond > 0:
            return round(middle * (short / middle) ** min(1.0, beyond / self._fit.sure))
        return min(bound, round(middle * (longest / middle) ** min(1.0, -beyond / self._fit.doubtful)))


def bound_ms(moment: EndpointingContext, eagerness: Eagerness) -> int:
    """Return the longest silence for such words. Only words that never end a sentence are waited for to the maximum.

    A comma alone is no such sign: ASR models also write one at the end of a clip without silence after it.
    """
    _, middle, longest = WAITS_MS[eagerness]
    if not moment.heard:
        return longest
    if completeness(moment.words, moment.languages) >= _FINISHED:
        return min(longest, round(_LONGEST_FINISHED * middle))
    is_open = completeness(moment.words.rstrip(" ,"), moment.languages) < 0
    return longest if is_open else min(longest, round(_LONGEST_UNCLEAR * middle))


def features(moment: EndpointingContext) -> Weights:
    """Return the inputs of the regression, 1 for the bias first."""
    sound = min(max(moment.sound or 0.0, 1e-6), 1 - 1e-6)
    odds = min(max(math.log(sound / (1 - sound)), -_MOST), _MOST)
    words = completeness(moment.words, moment.languages) if moment.heard else 0.0
    return 1.0, odds, moment.falling, words


def log_odds(moment: EndpointingContext, fit: Fit) -> float:
    """Return the log-odds that the turn is over."""
    weights = fit.heard if moment.heard else fit.unheard
    return sum(weight * value for weight, value in zip(weights, features(moment), strict=True))
