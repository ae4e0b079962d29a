"""API keys by name: reading a key file, and finding the key that a request sent."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.telemetry import log
from engine import ConfigError
from engine.deployment.secret_file import check_secret

MIN_CHARS = 16
"""Minimum length of a key in characters, the same as of a worker's token.

16 random letters and digits have more than 2^83 possible values, and the throttle allows 28,800 attempts a day from one
address. A shorter key is an error, because a warning in the log of a running server would go unread.
"""

_NAMED = re.compile(r"(?P<name>\S+):\s+(?P<value>\S.*)")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
"""A key's name: one word, since it appears in log lines and metric labels."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``name`` appears in logs and metrics, and owns what the key made. ``value`` never leaves the process."""

    name: str
    value: str = field(repr=False)


def read_keys(path: str | None, name: str = "server.keys_file") -> tuple[ApiKey, ...]:
    """Read the keys of a file: one per line, as ``name: key`` or as the key alone.

    A key without a name is named after the start of its digest. Returns no keys if ``path`` is None. Raises
    ConfigError, whose message contains no key.
    """
    if path is None:
        return ()
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{name}: cannot read the key file {path}: {reason}") from None
    keys = tuple(_keys_of(lines, f"{name}: {path}"))
    if not keys:
        raise ConfigError(
            f"{name}: {path} contains no key; write each on its own line, as 'name: key' or the key alone"
        )
    return keys


def _keys_of(lines: Iterable[str], where: str) -> Iterator[ApiKey]:
    names, values = set[str](), set[str]()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key = _key_of(line, f"{where}, line {number}")
        if key.name in names or key.value in values:
            raise ConfigError(
                f"{where}, line {number}: this name or key is already in the file; remove one of the two lines"
            )
        names.add(key.name)
        values.add(key.value)
        yield key


def _key_of(line: str, where: str) -> ApiKey:
    named = _NAMED.fullmatch(line)
    name, value = (named["name"], named["value"]) if named else (f"key-{_digest(line).hex()[:8]}", line)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name must consist of 1 to 64 letters, digits, '.', '_', '@' and '-'")
    if value.split() != [value]:
        raise ConfigError(f"{where}: a key must not contain spaces; write 'name: key', or the key alone")
    return ApiKey(name, value)


class ApiKeys:
    """The keys that a server accepts. Empty, and so false, if the server requires no key.

    ``withdrawn`` is called with the name of each key that is removed or replaced.
    """

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self.withdrawn: Callable[[str], None] = lambda owner: None
        self._names = {_digest(key.value): key.name for key in keys}
        self._file: _File | None = None

    @classmethod
    def of_file(cls, path: str | None, name: str) -> ApiKeys:
        """Read the keys of a file, and reread it when it changes (see ``refresh``).

        Raises ConfigError if the file can't be trusted: other users can read it, or a key is too short.
        """
        if path is None:
            return cls()
        file = _File(Path(path).expanduser(), name)
        keys = cls(file.read())
        keys._file = file
        return keys

    def __len__(self) -> int:
        return len(self._names)

    @property
    def names(self) -> set[str]:
        return set(self._names.values())

    def owner(self, given: str) -> str | None:
        """Return the name of a key, or None if no key matches. Compares in constant time."""
        digest = _digest(given)
        # compares with every key
        names = [name for known, name in self._names.items() if hmac.compare_digest(digest, known)]
        return names[0] if names else None

    def refresh(self) -> None:
        """Reread the file if it has changed. Checking takes microseconds.

        If the new file can't be used, the old keys stay valid and the log reports the error.
        """
        if self._file is None or not self._file.changed():
            return
        try:
            now = {_digest(key.value): key.name for key in self._file.read()}
        except ConfigError as error:
            log("keys.unusable", file=self._file.name, error=str(error))
            return
        gone = [name for digest, name in self._names.items() if now.get(digest) != name]
        self._names = now
        log("keys.reloaded", file=self._file.name, keys=len(now), withdrawn=",".join(gone) or "-")
        for name in gone:
            self.withdrawn(name)


class _File:
    """A key file with restricted permissions, and its state when it was last read."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._path = path
        self._seen = self._look()

    def changed(self) -> bool:
        """Return whether the file has changed since the last call."""
        before = self._seen
        self._seen = self._look()
        return before != self._seen

    def read(self) -> tuple[ApiKey, ...]:
        """Read and check the keys. Raises ConfigError."""
        keys = read_keys(str(self._path), self.name)
        check_secret(self._path, self.name)
        short = [key.name for key in keys if len(key.value) < MIN_CHARS]
        if short:
            message = f"the key {short[0]!r} is too short; use at least {MIN_CHARS} characters (openssl rand -hex 32)"
            raise ConfigError(f"{self.name}: {self._path}: {message}")
        return keys

    def _look(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _digest(key: str) -> bytes:
    """Hash a key, so that comparing keys of any length takes the same time."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
