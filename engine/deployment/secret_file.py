"""Reads files with secrets, and checks that each is protected from other users, by its owner and mode.

The rule is PostgreSQL's for certificate keys (``src/backend/libpq/be-secure-common.c``), with one exception: a group
may also read the file of a third user, so that containers can mount files of their host.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.errors import ConfigError


def check_secret(path: Path, name: str) -> None:
    """Check that other users can neither read nor write a file.

    Raises:
        ConfigError: Other users can, or the file is missing. The message begins with ``name``.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}.") from None
    if not is_secret(status, os.geteuid()):
        raise ConfigError(
            f"{name}: Other users of this machine can read {path}, or write to it. Run: chmod 600 {path}. "
            "(A mounted file that belongs to root may have mode 440 and a group of the server's user.)"
        )


def read_secret(file: str, name: str) -> str:
    """Return the text of a file with a secret, without white space around it.

    Raises:
        ConfigError: Other users can read the file, the server cannot read it, or it is empty. The message begins with
            ``name``.
    """
    path = Path(file).expanduser()
    check_secret(path, name)
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {path} is not UTF-8 text.") from None
    if not secret:
        raise ConfigError(f"{name}: {path} is empty")
    return secret


def is_secret(status: os.stat_result, user: int) -> bool:
    """Whether only the file's owner can write it, and only users that the server ``user`` needs can read it.

    A group may read a file of root or of a third user: that owner chose the group, and the server reads the file as its
    member. A file of the server's own user needs no group.
    """
    group = stat.S_IRWXG if status.st_uid == user != 0 else stat.S_IWGRP | stat.S_IXGRP
    return not status.st_mode & (stat.S_IRWXO | group)
