"""The command line and environment of every process that Parley starts."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

PYTHON = (sys.executable, "-P")
"""The interpreter. -P keeps the working directory off the import path: it may contain another ``engine`` package."""

WORKER = ("-m", "parley_voice.engine.worker")
"""By the name that it has in every environment: another may have Parley as a wheel, or from a clone."""


def worker(python: str | None = None) -> tuple[str, ...]:
    """Return the command of a worker process. ``python`` is the interpreter of another environment."""
    return (python or sys.executable, "-P", *WORKER)


_PR_SET_PDEATHSIG = 1

DEFAULTS = {"OPENBLAS_NUM_THREADS": "1"}
"""Environment variables of workers, unless the user sets others.

One BLAS thread: a voice's matrix products are small, and threads that share one wait for each other. On a busy machine
that wait is four times as long as the product.
"""


def environment() -> dict[str, str]:
    """Return this process's environment, completed by DEFAULTS."""
    return DEFAULTS | os.environ


def end_with_parent(number: signal.Signals) -> Callable[[], object] | None:
    """Return a function for a new process: Linux then sends it this signal when its parent ends, even if the parent is
    killed. None on other systems, which have no such function.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    set_option = ctypes.CDLL(None).prctl  # loaded now, because the function may run between fork and exec
    return lambda: set_option(_PR_SET_PDEATHSIG, number)
