"""How a process of ours is called, whoever starts it."""

from __future__ import annotations

import os
import sys

PYTHON = (sys.executable, "-P")
"""With -P the folder that somebody happens to be in is not searched: it may have an ``engine`` of its own."""

WORKER = ("-m", "engine.worker")


def worker(python: str | None = None) -> tuple[str, ...]:
    """A worker's process on this machine; ``python`` is the interpreter of another environment."""
    return (python or sys.executable, "-P", *WORKER)


DEFAULTS = {"OPENBLAS_NUM_THREADS": "1"}
"""What a worker's environment says unless the caller's does. numpy's products of a voice are small, and threads that
share one wait for each other, on a busy machine four times as long as the product takes."""


def environment() -> dict[str, str]:
    """The caller's own, and the defaults."""
    return DEFAULTS | os.environ
