"""The memory that is a process's own, in megabytes: its anonymous pages and what it shares by name. Linux.

Neither RSS nor PSS is fit for a slope: RSS has pages of files, which the kernel takes away and brings back as it likes,
and the PSS of one process grows when another one, which shared them, is killed. What leaks is anonymous or shared
memory (``RssAnon`` and ``RssShmem`` of /proc/PID/status).

The server's series has teeth of 10 to 20 MB all the same: it grows into what its sessions need at most, and falls each
time that ``app/limits/memory_budget.py`` gives back what is free. So the slope is that of the teeth's tips
(``verdict.peaks``).
"""

from __future__ import annotations

import re
from pathlib import Path


def own_mb(pid: int) -> float:
    """Raises OSError if there is no such process."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "RssAnon", "RssShmem") * 1024 / 1e6


def pss_mb(pid: int) -> float:
    """Raises OSError if there is no such process."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss") * 1024 / 1e6


def _kilobytes(page: Path, *names: str) -> int:
    found = dict(re.findall(r"(?m)^(\w+):\s+(\d+) kB$", page.read_text()))
    return sum(int(found.get(name, 0)) for name in names)
