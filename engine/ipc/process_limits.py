"""Limits that a process sets itself before it reads foreign data. Not for Windows."""

from __future__ import annotations

import math
import resource
from contextlib import suppress
from pathlib import Path


def limit_memory(more: int) -> None:
    """Limit the address space to ``more`` bytes beyond its present size, and write no core file. macOS ignores the
    limit.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_cpu(seconds: float) -> None:
    """Let the system end this process after further CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
