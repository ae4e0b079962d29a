"""The end of a worker's process whose blocking step is beyond its deadline, when nobody else can end it.

The server kills the workers that it started. One from elsewhere has to end by itself, and cannot where the call holds
Python's lock. So the kernel does it, by an alarm; before that the log is told where every thread was. Knows no stage.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable

from engine.ipc import messages

GRACE_S = 1.0
"""Seconds behind the deadline: the server is the first to act, for it knows then whose fault it was."""


class Watchdog:
    """The last resort of one process; ``note`` each blocking step as the server is informed of it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until_s: dict[str, float] = {}
        if sys.stderr is not None:
            log = os.dup(sys.stderr.fileno())  # the process's own, where a call's lines are kept out of stderr, too
            faulthandler.register(signal.SIGALRM, log, chain=True)  # then the signal's default: the process ends

    def note(self, step: messages.Blocking) -> None:
        """Set the alarm behind the last deadline of the steps that are under way; without any there is none."""
        self._until_s.pop(step.stage, None)
        if step.most_s:
            self._until_s[step.stage] = self._now() + step.most_s
        left_s = max(self._until_s.values()) - self._now() + GRACE_S if self._until_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, left_s and max(left_s, GRACE_S))
