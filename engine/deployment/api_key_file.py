"""API keys of other servers, read from files. No message or log line shows a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine.deployment.secret_file import check_secret
from engine.errors import ConfigError

LONGEST = 4096
"""Maximum size of a key file in bytes. Signed cloud tokens have about 2000."""


@dataclass(frozen=True, slots=True)
class Key:
    """An API key. Its ``repr`` does not show the value."""

    value: str = field(repr=False)


def read_key(path: str, name: str = "key_file") -> Key:
    """Read the API key from a file that holds one key on one line.

    Args:
        path: The path of the file; ``~`` is the home directory.
        name: The setting that error messages name.

    Raises:
        ConfigError: The file is unreadable, accessible to other users, or does not hold one key.
    """
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
