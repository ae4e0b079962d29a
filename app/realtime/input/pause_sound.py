"""The end-of-turn model's judgement of the sound before a pause, asked once per pause."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from app.realtime.inference_thread import InferenceThread
from app.realtime.ports import EndOfTurnModel
from engine.core import Pcm

ASK_MS = 100
"""Silence after which the model is asked."""

DEADLINE_S = 0.150
"""Seconds that are waited for the model. After that, the fixed silence decides, unless the result comes first."""


class PauseSound:
    """How the present pause of one session sounds. ``now`` is monotonic seconds."""

    def __init__(self, thread: InferenceThread, now: Callable[[], float]) -> None:
        self._thread = thread
        self._now = now
        self._asked: Future[float] | None = None
        self._deadline_s = 0.0
        self._pause_from: int | None = None
        self._probability: float | None = None

    def follow(self, model: EndOfTurnModel, pause_from: int | None, sound: Callable[[], Pcm]) -> None:
        """Ask about a new pause, or drop the question if the user goes on.

        ``pause_from`` is the sample at which the present pause of at least ``ASK_MS`` began; None: there is none.
        ``sound`` returns the turn so far.
        """
        if pause_from == self._pause_from:
            return
        self.forget()
        self._pause_from = pause_from
        if pause_from is not None:
            self._asked = self._thread.submit(model, sound())
            self._deadline_s = self._now() + DEADLINE_S

    def forget(self) -> None:
        """Drop the question and its answer: speech resumed, or the turn is over."""
        if self._asked is not None:
            self._asked.cancel()
        self._asked = None
        self._probability = None
        self._pause_from = None

    def read(self) -> tuple[float | None, bool]:
        """Return the probability that the turn is over, None if not known, and whether to wait for it.

        A result after the deadline is not waited for, but still counts: it ends a long wait for unfinished words.
        """
        if self._asked is None:
            return self._probability, False
        if self._asked.done():
            self._take(self._asked)
            self._asked = None
            return self._probability, False
        is_late = self._now() > self._deadline_s
        if is_late:
            self._thread.warn(f"took longer than {DEADLINE_S * 1000:.0f} ms")
        return None, not is_late

    def _take(self, asked: Future[float]) -> None:
        if asked.cancelled():
            return
        if (error := asked.exception()) is None:
            self._probability = asked.result()
        else:
            self._thread.warn(f"failed ({error})")
