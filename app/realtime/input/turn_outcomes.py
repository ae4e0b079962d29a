"""Counts how well a session's turns were ended: early cuts, interruptions without words, barge-ins and dead air."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from app.realtime.conversation import Utterance
from app.realtime.input.endpointing import completeness
from app.realtime.input.wait_tuner import WaitTuner

CUT_S = 1.2
"""Seconds after an answer's first sound in which words that continue the turn show that it was cut."""
UNHEARD_S = 0.3
"""Seconds of an answer that nobody reacts to yet: earlier speech shows in any case that the turn was cut."""
DEAD_AIR_S = 2.0
"""Seconds between the user's last word and the answer's first sound that users take for a failure."""

Outcome = Literal["turns", "early_cuts", "false_interruptions", "barge_ins", "dead_air"]
_WHOLE = 0.7  # completeness of words from which they are taken for a whole sentence


@dataclass(slots=True)
class _Turn:
    """The last turn. Its words may still change until its answer begins; then its audio and camera frames are freed."""

    utterance: Utterance | None
    last_word_s: float
    wait_ms: float
    """The wait that ended it, before tuning."""
    final_words: str = ""

    @property
    def words(self) -> str:
        said = self.utterance
        return self.final_words if said is None else said.final_words or said.so_far

    def release(self) -> None:
        self.final_words = self.words
        self.utterance = None


@dataclass(frozen=True, slots=True)
class _Overlap:
    """Speech while an answer is due, or over it. Its words decide later which outcome it is."""

    before: _Turn
    speech: Utterance
    played_s: float | None
    """Seconds of the answer that had been played; None if it had no sound yet."""
    pause_ms: float
    """Silence between the turn before and this speech."""


class TurnOutcomes:
    """The counts of one session. ``count`` receives each outcome. Times are monotonic seconds.

    A ``tuner`` learns from cuts and turns.
    """

    def __init__(self, count: Callable[[Outcome], None]) -> None:
        self.tuner: WaitTuner | None = None
        self.counts: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self._count = count
        self._last: _Turn | None = None
        self._sound_s: float | None = None  # when the answer to the last turn was first heard
        self._answering = False  # whether an answer is due, or under way
        self._overlap: _Overlap | None = None

    @property
    def report(self) -> Mapping[str, float]:
        """Return the counts, and the factor of the waits if they are tuned."""
        factor = {} if self.tuner is None else {"wait_factor": round(self.tuner.factor, 3)}
        return {**self.counts, **factor}

    def turn_began(self, speech: Utterance, now_s: float, plays: bool = False) -> None:
        """The user speaks. ``plays``: the listener still hears an answer, which may have ended for the server."""
        self.settle()
        self._check_dead_air(now_s)
        played_s = None if self._sound_s is None else now_s - self._sound_s
        over_answer = self._answering or plays or (played_s is not None and played_s <= CUT_S)
        if self._last is not None and over_answer:
            pause_ms = (now_s - self._last.last_word_s) * 1000
            self._overlap = _Overlap(self._last, speech, played_s, pause_ms)
        else:
            self._add_turn()

    def turn_ended(self, turn: Utterance, now_s: float, wait_ms: float, answered: bool) -> None:
        """A silence has ended the user's turn. ``wait_ms``: the wait before tuning. ``answered``: an answer is due."""
        if turn.confident is not None:
            self.settle()
        self._last = _Turn(turn, now_s - (turn.silence_ms or 0.0) / 1000, wait_ms)
        self._sound_s = None
        self._answering = answered

    def turn_dropped(self) -> None:
        """The speech over an answer was no turn, so the answer goes on."""
        overlap = self._overlap
        self._overlap = None
        if overlap is not None and not overlap.speech.final_words:
            self._add("false_interruptions")

    def answer_began(self) -> None:
        self._answering = True

    def answer_ended(self) -> None:
        self._answering = False
        self._release()

    def answer_sounds(self, now_s: float) -> None:
        """The user hears the answer."""
        if self._sound_s is None:
            self.settle()
            self._check_dead_air(now_s)
            self._sound_s = now_s
            self._release()

    def settle(self) -> None:
        """Count the last overlap, now that its words are known."""
        overlap = self._overlap
        self._overlap = None
        if overlap is None:
            return
        kind = _kind(overlap)
        if kind == "early_cuts" and self.tuner is not None:
            self.tuner.add_pause(overlap.pause_ms, overlap.before.wait_ms)
        if kind is not None:
            self._add(kind)
        if kind == "barge_ins":
            self._add_turn()

    def forget(self) -> None:
        """Free the last turns: the session is over."""
        self._last = None
        self._overlap = None

    def _release(self) -> None:
        if self._last is not None:
            self._last.release()

    def _check_dead_air(self, now_s: float) -> None:
        if self._last is None or not self._answering or self._sound_s is not None:
            return
        if now_s - self._last.last_word_s > DEAD_AIR_S:
            self._add("dead_air")

    def _add_turn(self) -> None:
        self._add("turns")
        if self.tuner is not None:
            self.tuner.add_turn()

    def _add(self, kind: Outcome) -> None:
        self.counts[kind] += 1
        self._count(kind)


def _kind(overlap: _Overlap) -> Outcome | None:
    """Return the outcome that speech over an answer counts as; None for noise before the answer."""
    speech, played_s = overlap.speech, overlap.played_s
    words = speech.final_words or speech.so_far
    if not words and speech.confident is not None:
        return None if played_s is None else "false_interruptions"
    if played_s is None or played_s < UNHEARD_S:
        return "early_cuts"
    return "early_cuts" if played_s <= CUT_S and _continues(overlap.before, words) else "barge_ins"


def _continues(before: _Turn, words: str) -> bool:
    """Return whether words continue an unfinished sentence."""
    return bool(words) and completeness(before.words) < _WHOLE
