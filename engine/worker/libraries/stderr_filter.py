"""A filter for lines on stderr in which a native library quotes users.

Other lines are passed on when the block is left.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
"""The process has only one stderr."""


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
    """Open a file in memory that receives stderr.

    On systems without memfd, the file is the null device, and all lines are lost.
    """
    return os.memfd_create("stderr") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
