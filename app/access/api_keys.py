"""API keys by name: what a file of keys holds, and whose key a request came with. Knows no request and no socket."""

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
"""The least that a server takes for a key, as it is for a worker's token. Of 16 random letters and digits there are
2^83; the throttle leaves an address 28 800 tries a day. A shorter key is an error and no warning: nobody reads the log
of a server that works."""

_NAMED = re.compile(r"(?P<name>\S+):\s+(?P<value>\S.*)")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
"""One word of a log line, and of a metric's label."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """``name`` stands in logs and metrics, and owns what is made with the key. ``value`` never leaves the process."""

    name: str
    value: str = field(repr=False)


def read_keys(path: str | None, name: str = "server.keys_file") -> tuple[ApiKey, ...]:
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


def _keys_of(lines: Iterable[str], where: str) -> Iterator[ApiKey]:
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


def _key_of(line: str, where: str) -> ApiKey:
    named = _NAMED.fullmatch(line)
    name, value = (named["name"], named["value"]) if named else (f"key-{_digest(line).hex()[:8]}", line)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name has at most 64 letters, digits, '.', '_', '@' and '-'")
    if value.split() != [value]:
        raise ConfigError(f"{where}: a key has no spaces; write 'name: key', or the key alone")
    return ApiKey(name, value)


class ApiKeys:
    """The keys that a server takes; False where it asks for none. ``withdrawn`` is told the names of those that go."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self.withdrawn: Callable[[str], None] = lambda owner: None
        self._names = {_digest(key.value): key.name for key in keys}
        self._file: _File | None = None

    @classmethod
    def of_file(cls, path: str | None, name: str) -> ApiKeys:
        """The keys of a file, as it is at the time of each request. Raises ConfigError for a file that a server should
        not trust: others can read it, or guess a key."""
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
        """The name of the key that was sent, in a time that tells nothing of the keys; None: it is none of these."""
        digest = _digest(given)
        names = [name for known, name in self._names.items() if hmac.compare_digest(digest, known)]  # looks at all
        return names[0] if names else None

    def refresh(self) -> None:
        """Read the file again if it has changed: a look at it takes microseconds. One that can't be used changes
        nothing, and is told in the log."""
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
    """A file of keys that a server trusts, and what it looked like when it was read."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._path = path
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether it is another one than it was at the last call."""
        before = self._seen
        self._seen = self._look()
        return before != self._seen

    def read(self) -> tuple[ApiKey, ...]:
        """Raises ConfigError."""
        keys = read_keys(str(self._path), self.name)
        check_secret(self._path, self.name)
        short = [key.name for key in keys if len(key.value) < MIN_CHARS]
        if short:
            message = f"the key {short[0]!r} is too short; {MIN_CHARS} characters are the least (openssl rand -hex 32)"
            raise ConfigError(f"{self.name}: {self._path}: {message}")
        return keys

    def _look(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _digest(key: str) -> bytes:
    """Keys of any length compare in the same time."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
