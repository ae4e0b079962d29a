"""The process's limit on open files and sockets, and the number of descriptors that client connections may use."""

from __future__ import annotations

import os
import resource

ENOUGH = 8192
"""A lower soft limit is raised to this, as far as the system allows.

The usual 1024 exists for programs that call ``select``, which this one does not.
"""

KEPT = 256
"""Descriptors reserved for restarting workers, the sockets of calls (about two each) and files; at most a quarter of
the limit.
"""


def raise_limit() -> None:
    """Raise the soft limit of this process and of the workers that it starts. Never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))


def for_clients() -> int:
    """Return how many connections clients may open in addition to the descriptors open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(8, soft - min(KEPT, soft // 4) - len(os.listdir("/dev/fd")))
