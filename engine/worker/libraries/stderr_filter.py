"""Filter for a native library's lines on stderr that quote users.

Lines of other writers are passed on afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
"""The process has one stderr."""


@contextmanager
def without_lines_of(source: bytes) -> Generator[None]:
    """Drop lines on stderr that contain ``source``, a folder of the library's code."""
    with _lock:
        kept, out = _memory(), os.dup(2)
        os.dup2(kept, 2)
        try:
            yield
        finally:
            os.dup2(out, 2)
            written = os.pread(kept, os.fstat(kept).st_size, 0)
            os.close(kept)
            lines = [line for line in written.splitlines(keepends=True) if source not in line]
            if lines:
                os.write(out, b"".join(lines))
            os.close(out)


def _memory() -> int:
    """Open a file in memory. On systems without such files all lines are dropped."""
    return os.memfd_create("stderr") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
