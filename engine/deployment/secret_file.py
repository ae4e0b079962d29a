"""Whether a file that holds a secret is one: who else may read it, by its owner and mode. Knows no contents.

The rule is PostgreSQL's for the key of its certificate (``src/backend/libpq/be-secure-common.c``), but that it lets a
group read a third user's file, too: so containers mount what lies on their host.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.errors import ConfigError


def check_secret(path: Path, name: str) -> None:
    """Raises ConfigError, which begins with ``name``, where other users can read the file or write to it."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}.") from None
    if not is_secret(status, os.geteuid()):
        raise ConfigError(
            f"{name}: Other users of this machine can read {path}, or write to it. Run: chmod 600 {path}. "
            "(A mounted file that belongs to root may have mode 440, for a group of the server's user.)"
        )


def is_secret(status: os.stat_result, user: int) -> bool:
    """Whether nobody but its owner can write the file, and it is read by no more users than a server that runs as
    ``user`` needs.

    A group may read what belongs to root or to a third user: they chose the group, and as one of it the server reads
    the file. What belongs to the server's own user needs no group.
    """
    group = stat.S_IRWXG if status.st_uid == user != 0 else stat.S_IWGRP | stat.S_IXGRP
    return not status.st_mode & (stat.S_IRWXO | group)
