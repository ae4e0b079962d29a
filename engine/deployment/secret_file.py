"""Reads files with secrets, and checks that each is protected from other users, by its owner and mode.

The rule is PostgreSQL's for certificate keys (``src/backend/libpq/be-secure-common.c``), with one exception: a group
may also read the file of a third user, so that containers can mount files of their host.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from engine.errors import ConfigError

LONGEST = 4096
"""Maximum size of such a file in bytes. Signed cloud tokens have about 2000."""


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


def read_secret_bytes(file: str | Path, name: str) -> bytes:
    """Return the content of a file with a secret, without white space around it.

    Args:
        file: The path of the file; ``~`` is the home directory.
        name: The setting that error messages name. They never contain the secret.

    Raises:
        ConfigError: Other users can read the file, the server cannot read it, or it is empty or too long.
    """
    path = Path(file).expanduser()
    check_secret(path, name)
    try:
        with path.open("rb") as opened:
            data = opened.read(LONGEST + 1)
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error.strerror}.") from None
    if not data.strip():
        raise ConfigError(f"{name}: {path} is empty")
    if len(data) > LONGEST:
        raise ConfigError(f"{name}: {path} is longer than {LONGEST} bytes")
    return data.strip()


def read_secret(file: str, name: str) -> str:
    """Return the text of a file with a secret. Raises ConfigError as ``read_secret_bytes``, or if it is not UTF-8."""
    try:
        return read_secret_bytes(file, name).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {file} is not UTF-8 text.") from None


def read_key(file: str, name: str = "key_file") -> str:
    """Return another server's API key from a file with one key on one line. Raises ConfigError."""
    key = read_secret(file, name)
    if not all("!" <= letter <= "~" for letter in key):
        raise ConfigError(f"{name}: {file} must hold one key on one line, and nothing else.")
    return key


def is_secret(status: os.stat_result, user: int) -> bool:
    """Whether only the file's owner can write it, and only users that the server ``user`` needs can read it.

    A group may read a file of root or of a third user: that owner chose the group, and the server reads the file as its
    member. A file of the server's own user needs no group.
    """
    group = stat.S_IRWXG if status.st_uid == user != 0 else stat.S_IWGRP | stat.S_IXGRP
    return not status.st_mode & (stat.S_IRWXO | group)
