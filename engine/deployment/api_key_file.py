"""The key of somebody else's server, read from a file where it is used. It is shown nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine.deployment.secret_file import check_secret
from engine.errors import ConfigError

LONGEST = 4096
"""Bytes of a key file: signed tokens of clouds have some 2000."""


@dataclass(frozen=True, slots=True)
class Key:
    """``value`` goes into the head of a request, and nowhere else."""

    value: str = field(repr=False)


def read_key(path: str, name: str = "key_file") -> Key:
    """The key in a file: one line. Raises ConfigError, which shows no key: unreadable, open to others, or no key."""
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            data = opened.read(LONGEST + 1)
        check_secret(file, name)
    except OSError as error:
        raise ConfigError(f"{name}: The key file {path} cannot be read: {error.strerror}.") from None
    value = data.strip()
    if not value or len(data) > LONGEST or not all(0x21 <= byte <= 0x7E for byte in value):
        raise ConfigError(f"{name}: {path} must hold one key on one line, and nothing else.")
    return Key(value.decode("ascii"))
