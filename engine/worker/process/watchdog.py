"""Ends a worker's process if its blocking step exceeds its deadline.

The server kills the workers that it started. A worker on another machine must end on its own, and cannot do so from
Python while a native call holds the GIL. So the kernel ends it by an alarm signal. Before that, the stack of every
thread is logged.
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
"""Seconds after the deadline: the server should act first, because it then knows which request was the cause."""


class Watchdog:
    """The watchdog of one process. Call ``note`` with each Blocking message that is sent to the server."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until_s: dict[str, float] = {}
        if sys.stderr is not None:
            log = os.dup(sys.stderr.fileno())  # a copy: native calls may redirect stderr
            faulthandler.register(signal.SIGALRM, log, chain=True)  # then the signal's default action: the process ends

    def note(self, step: messages.Blocking) -> None:
        """Set the alarm after the last deadline of the running steps; cancel it if there are none."""
        self._until_s.pop(step.stage, None)
        if step.most_s:
            self._until_s[step.stage] = self._now() + step.most_s
        left_s = max(self._until_s.values()) - self._now() + GRACE_S if self._until_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, left_s and max(left_s, GRACE_S))
