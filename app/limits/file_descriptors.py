"""The number of files and sockets that this process may have open, and how many of them are not for idle
connections."""

from __future__ import annotations

import os
import resource

ENOUGH = 8192
"""A soft limit of less is raised, as far as the system lets us: what is customary, 1024, is there for programs that
call ``select``, which we don't."""

KEPT = 256
"""Kept for workers that come back (some each), the sockets of calls (two or so each) and files; a quarter of what there
is, if that is less."""


def raise_limit() -> None:
    """Let this process, and the workers that it starts, open as many as are of use. Never lowers the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))


def for_clients() -> int:
    """Return how many connections there may be, beside what is open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(8, soft - min(KEPT, soft // 4) - len(os.listdir("/dev/fd")))
