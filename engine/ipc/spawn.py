"""The command and the environment with which our processes are started, whichever part starts them."""

from __future__ import annotations

import os
import sys

PYTHON = (sys.executable, "-P")
"""The interpreter with -P: the folder that somebody happens to be in is not searched, for it may have an ``engine`` of
its own."""

WORKER = ("-m", "parley_voice.engine.worker")
"""By the name that it has in every environment: another may have Parley as a wheel, or from a clone."""


def worker(python: str | None = None) -> tuple[str, ...]:
    """A worker's process on this machine; ``python`` is the interpreter of another environment."""
    return (python or sys.executable, "-P", *WORKER)


DEFAULTS = {"OPENBLAS_NUM_THREADS": "1"}
"""The worker's environment unless the caller sets another. numpy's products of a voice are small, and threads that
share one wait for each other, on a busy machine four times as long as the product takes."""


def environment() -> dict[str, str]:
    """The caller's own, and the defaults."""
    return DEFAULTS | os.environ
