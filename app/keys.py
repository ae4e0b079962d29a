"""API keys by name: what a file of keys holds, and whose key a request came with. Knows no request and no socket."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine import ConfigError

_NAMED = re.compile(r"(?P<name>\S+):\s+(?P<value>\S.*)")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
"""One word of a log line, and of a metric's label."""


@dataclass(frozen=True, slots=True)
class Key:
    """``name`` stands in logs and metrics, and owns what is made with the key. ``value`` never leaves the process."""

    name: str
    value: str = field(repr=False)


def read_keys(path: str | None, name: str = "server.keys_file") -> tuple[Key, ...]:
    """The keys in a file, one a line: ``name: key``, or the key alone, whose name is then the start of its digest.

    None without a file. Raises ConfigError, which shows no key.
    """
    if path is None:
        return ()
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{name}: cannot read {path}: {reason}") from None
    keys = tuple(_keys_of(lines, f"{name}: {path}"))
    if not keys:
        raise ConfigError(f"{name}: {path} holds no key")
    return keys


def _keys_of(lines: Iterable[str], where: str) -> Iterator[Key]:
    names, values = set[str](), set[str]()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key = _key_of(line, f"{where}, line {number}")
        if key.name in names or key.value in values:
            raise ConfigError(f"{where}, line {number}: this name or this key stands in the file twice")
        names.add(key.name)
        values.add(key.value)
        yield key


def _key_of(line: str, where: str) -> Key:
    named = _NAMED.fullmatch(line)
    name, value = (named["name"], named["value"]) if named else (f"key-{_digest(line).hex()[:8]}", line)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name has at most 64 letters, digits, '.', '_', '@' and '-'")
    if value.split() != [value]:
        raise ConfigError(f"{where}: a key has no spaces; write 'name: key', or the key alone")
    return Key(name, value)


class Keys:
    """The keys that a server takes. False where it asks for none."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._names = {_digest(key.value): key.name for key in keys}

    def __len__(self) -> int:
        return len(self._names)

    def owner(self, given: str) -> str | None:
        """The name of the key that was sent, in a time that tells nothing of the keys; None: it is none of these."""
        digest = _digest(given)
        names = [name for known, name in self._names.items() if hmac.compare_digest(digest, known)]  # looks at all
        return names[0] if names else None


def _digest(key: str) -> bytes:
    """Keys of any length compare in the same time."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
