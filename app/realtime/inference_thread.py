"""The threads in which a server runs end-of-turn models and speaker embeddings, off the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from app.realtime.ports import EndOfTurnModel
from engine.core import Pcm

T = TypeVar("T")

THREADS = 2
"""Judgements at once. One alone ends the turns of users who pause together much later."""

log = logging.getLogger("parley")


class InferenceThread:
    """The threads of a server that run end-of-turn models and speaker embeddings.

    The line is bounded by the number of sessions: each has at most one judgement of each kind in it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(THREADS, "end-of-turn")
        self._warm: set[int] = set()
        self._has_warned = False
        self._has_warned_speaker = False
        self._is_closed = False

    def start(self) -> None:
        """Start a thread now rather than at the first judgement."""
        self._thread.submit(int)

    def submit(self, model: EndOfTurnModel, pcm: Pcm) -> Future[float]:
        """Judge int16 [samples] once a thread is free. Cancelling the future removes it from the line.

        After ``close`` the future is cancelled already.
        """
        return self.run(model.listen, pcm)

    def run(self, work: Callable[[Pcm], T], pcm: Pcm) -> Future[T]:
        """Do work on int16 [samples] once a thread is free. Like ``submit``."""
        if self._is_closed:
            closed = Future[T]()
            closed.cancel()
            return closed
        return self._thread.submit(work, pcm)

    def warm_up(self, model: EndOfTurnModel) -> None:
        """Load a model that judges sound before its first pause comes. May be called many times."""
        if model.window_s and id(model) not in self._warm:
            self._warm.add(id(model))
            self.submit(model, np.zeros(0, np.int16))

    def warn(self, reason: str) -> None:
        """Log once that a judgement did not come."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("The end-of-turn model %s; a fixed silence ends such turns. This is logged once.", reason)

    def warn_speaker(self, reason: str) -> None:
        """Log once that a speaker embedding failed."""
        if not self._has_warned_speaker:
            self._has_warned_speaker = True
            log.warning("A speaker embedding failed (%s); such voices pass. This is logged once.", reason)

    def close(self) -> None:
        """Drop what waits in the line, and wait for the judgements under way. May be called twice."""
        self._is_closed = True
        self._thread.shutdown(cancel_futures=True)
