"""How a worker's process is called, whoever starts it."""

from __future__ import annotations

import os
import sys

COMMAND = (sys.executable, "-m", "engine.worker")


def environment() -> dict[str, str]:
    """The caller's own, but for numpy's products: those of a voice are small, and threads that share one then wait for
    each other, on a busy machine four times as long as the product takes."""
    return {"OPENBLAS_NUM_THREADS": "1", **os.environ}
