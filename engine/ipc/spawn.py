"""The command line and environment of every process that Parley starts."""

from __future__ import annotations

import os
import sys

PYTHON = (sys.executable, "-P")
"""The interpreter. -P keeps the working directory off the import path: it may contain another ``engine`` package."""

WORKER = ("-m", "parley_voice.engine.worker")
"""By the name that it has in every environment: another may have Parley as a wheel, or from a clone."""


def worker(python: str | None = None) -> tuple[str, ...]:
    """Return the command of a worker process. ``python`` is the interpreter of another environment."""
    return (python or sys.executable, "-P", *WORKER)


DEFAULTS = {"OPENBLAS_NUM_THREADS": "1"}
"""Environment variables of workers, unless the user sets others.

One BLAS thread: a voice's matrix products are small, and threads that share one wait for each other. On a busy machine
that wait is four times as long as the product.
"""


def environment() -> dict[str, str]:
    """Return this process's environment, completed by DEFAULTS."""
    return DEFAULTS | os.environ
