"""The speaker gate: decides whether a voice that begins to speak is the user's.

Sans-I/O: positions are samples of the session. Embeddings are computed in a thread, and polled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.realtime.inference_thread import InferenceThread
from app.realtime.input.speaker_encoder import unit
from app.realtime.input.voiceprint import read
from app.realtime.ports import Embedding, SpeakerEncoder
from engine.core import MIC_RATE_HZ, Pcm

Mode = Literal["any", "first", "enrolled"]

LEARN = 3 * MIC_RATE_HZ
"""Samples of speech from which a voice is learned."""

LONGEST = 2 * MIC_RATE_HZ
"""Samples of speech that are judged, at most."""

SHORTEST = MIC_RATE_HZ * 3 // 10
"""Samples of speech below which a voice is not judged, but passes."""


@dataclass(frozen=True, slots=True)
class VoiceCheck:
    """A time at which a voice is judged, and its scores: from ``accept`` on it is the user's, below ``reject`` another
    person's. One that pauses after this check is the user's from ``paused`` on.
    """

    samples: int
    accept: float
    reject: float
    paused: float


# Chosen by the errors and the turns that `python -m benchmarks.speakers --fit` prints.
CHECKS = (
    VoiceCheck(MIC_RATE_HZ * 6 // 10, accept=0.30, reject=-0.05, paused=0.17),
    VoiceCheck(MIC_RATE_HZ, accept=0.27, reject=0.00, paused=0.22),
    VoiceCheck(MIC_RATE_HZ * 3 // 2, accept=0.27, reject=0.08, paused=0.27),
    VoiceCheck(2 * MIC_RATE_HZ, accept=0.27, reject=0.27, paused=0.27),
)
"""The checks of a voice that goes on. The last one always decides."""

SHORT = 0.10
"""Score from which a voice that pauses before the first check is the user's."""

SHORT_AFTER_OTHER = 0.18
"""The same while another person has spoken within WARY."""

WARY = 10 * MIC_RATE_HZ
"""Samples after another person's speech within which short words are not taken for the user's without a judgement."""

OTHERS = 4
"""Voices of other people that are remembered."""

_PENALTY = 0.4  # part of the likeness to another person's voice that is subtracted
_SAME = 0.4  # likeness from which another person's voice is one that is remembered
_CLOSE = MIC_RATE_HZ // 10  # samples of speech after a judgement that would not change it


class SpeakerGate:
    """The gate of one session. It lets every voice pass until the user's is known."""

    def __init__(self, thread: InferenceThread, checks: Sequence[VoiceCheck] = CHECKS) -> None:
        self._thread = thread
        self._checks = checks
        self._encoder: SpeakerEncoder | None = None
        self._user: Embedding | None = None
        self._speech: list[Pcm] | None = None  # what the user has said so far; None if nothing is to be learned
        self._learning: Future[Embedding] | None = None
        self._start: int | None = None  # where the voice under judgement began
        self._asked: Future[Embedding] | None = None
        self._judged = 0  # samples of the voice at the last question
        self._passed = 0  # checks so far
        self._others: list[Embedding] = []  # voices that were refused, the latest last
        self._wary_to = 0  # the sample up to which short words are suspect

    @property
    def is_judging(self) -> bool:
        """Whether a voice is under judgement."""
        return self._start is not None

    @property
    def is_learning(self) -> bool:
        """Whether the user's voice is still to be learned."""
        return self._speech is not None

    def configure(self, encoder: SpeakerEncoder | None, speaker: Mode, voiceprint: str | None) -> None:
        """Forget the user's voice, and take it from a voiceprint (``enrolled``), or from the next turns (``first``)."""
        self.close()
        self._others = []
        self._wary_to = 0
        self._encoder = encoder
        self._learning = None
        self._speech = [] if speaker == "first" else None
        self._user = read(voiceprint or "") if speaker == "enrolled" else None

    def heard(self, speech: Pcm) -> None:
        """Take int16 [samples] of a turn that has ended: the user's voice is learned from the first LEARN samples."""
        if self._speech is None or self._encoder is None:
            return
        self._speech.append(speech)
        if sum(map(len, self._speech)) >= LEARN:
            self._learning = self._thread.run(self._encoder.embed, np.concatenate(self._speech))
            self._speech = None

    def begin(self, start: int) -> bool:
        """Begin to judge a voice that speaks since sample ``start``. Return False if it passes without."""
        self._take_learned()
        if self._user is None:
            return False
        self._start = start
        return True

    def close(self) -> None:
        """End the judgement of a voice."""
        if self._asked is not None:
            self._asked.cancel()
        self._asked = None
        self._start = None
        self._judged = 0
        self._passed = 0

    def is_user(self, end: int, paused: bool, sound: Callable[[], Pcm]) -> bool | None:
        """Return whether the voice is the user's; None if that is not known yet.

        Args:
            end: Sample up to which the voice has spoken.
            paused: Whether it is silent since then.
            sound: Returns the voice so far, int16 [samples].
        """
        spoken = end - (self._start or 0)
        if paused and spoken < SHORTEST:
            return end > self._wary_to
        if self._asked is not None:
            if not self._asked.done():
                return None
            verdict = self._verdict(self._asked, end, paused and spoken - self._judged < _CLOSE)
            self._asked = None
            if verdict is not None:
                return verdict
        self._ask(spoken, paused, sound)
        return None

    def _ask(self, spoken: int, paused: bool, sound: Callable[[], Pcm]) -> None:
        """Judge the voice if a check is due, or in a pause."""
        due = sum(check.samples <= spoken for check in self._checks)
        if self._encoder is not None and (paused or due > self._passed):
            self._passed = due
            self._judged = spoken
            self._asked = self._thread.run(self._encoder.embed, sound()[-LONGEST:])

    def _verdict(self, asked: Future[Embedding], end: int, is_last: bool) -> bool | None:
        """Return whether an embedding is the user's; None if the next check has to decide. ``is_last``: none comes."""
        if asked.cancelled() or self._user is None:
            return True
        if (error := asked.exception()) is not None:
            self._thread.warn_speaker(str(error))
            return True
        voice = asked.result()
        score = self._score(voice, self._user)
        check = self._checks[self._passed - 1] if self._passed else None
        if check is None:
            is_user = score >= (SHORT if end > self._wary_to else SHORT_AFTER_OTHER)
        elif is_last:
            is_user = score >= check.paused
        else:
            is_user = True if score >= check.accept else False if score < check.reject else None
        if is_user is False:
            self._wary_to = end + WARY
            self._remember(voice)
        return is_user

    def _score(self, voice: Embedding, user: Embedding) -> float:
        """Return how alike a voice is to the user's, and not to a person's who has spoken before."""
        return float(voice @ user) - _PENALTY * max((float(voice @ other) for other in self._others), default=0.0)

    def _remember(self, voice: Embedding) -> None:
        """Remember another person's voice, if there was enough of it."""
        if self._judged < self._checks[0].samples:
            return
        known = max(self._others, key=lambda other: float(voice @ other), default=None)
        self._others = [other for other in self._others if other is not known or float(voice @ other) < _SAME]
        if known is not None and float(voice @ known) >= _SAME:
            voice = unit(0.8 * known + 0.2 * voice)
        self._others = [*self._others, voice][-OTHERS:]

    def _take_learned(self) -> None:
        learning = self._learning
        if learning is None or not learning.done() or learning.cancelled():
            return
        self._learning = None
        if (error := learning.exception()) is None:
            self._user = learning.result()
        else:
            self._thread.warn_speaker(str(error))
