"""The facts of all keys: limited in number and size, read and written in one thread."""

from __future__ import annotations

import asyncio
import sqlite3
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import WeakSet

from app.facts import file
from app.facts.file import Fact, ForeignFileError
from app.refusal import Closed, Refusal
from app.settings import MemorySettings
from app.telemetry import audit, log
from engine import ConfigError
from engine.deployment.secret_file import check_secret

T = TypeVar("T")

MOST_NAME = 64
MOST_VALUE = 500
"""Maximum characters of a fact's name and value."""
MOST_WAITING = 64
"""Maximum number of operations of one key that wait for the file: 16 s if another process has locked it."""

_PRIMARY_CODE = 0xFF
"""The bits of SQLite's error codes without the details."""
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class MemoryUnavailable(Closed):
    """The file can't be read or written now."""

    def __init__(self, reason: str) -> None:
        super().__init__("memory_unavailable", f"The server's memory can't be used now: {reason}.")


class Watcher(Protocol):
    """A session that has read facts. It receives the later changes of any facts."""

    def replaced(self, owner: str, fact: Fact) -> None: ...

    def deleted(self, owner: str, user: str | None, name: str | None) -> None: ...


class FactStore:
    """The facts of one server. ``now`` returns Unix time. Raises ConfigError if the file can't be used."""

    def __init__(self, settings: MemorySettings, now: Callable[[], float] = time.time) -> None:
        self.watchers = WeakSet[Watcher]()
        self._path = Path(settings.path or "").expanduser()
        self._settings = settings
        self._now = now
        self._thread = ThreadPoolExecutor(1, "memory")
        self._waiting = Counter[str]()
        self._is_clean = True
        try:
            file.prepare(self._path)
        except (OSError, sqlite3.Error, ForeignFileError) as error:
            raise ConfigError(f"server.memory.path: {self._path} can't be used: {_reason(error)}.") from None
        check_secret(self._path, "server.memory.path")

    async def facts(self, owner: str, user: str | None = None) -> tuple[Fact, ...]:
        """Return the facts of one user of a key, or of all its users. Raises MemoryUnavailable."""

        def read() -> tuple[Fact, ...]:
            with file.transaction(self._path) as db:
                return file.select(db, owner, user)

        return await self._in_thread(owner, read, lambda _: None)

    async def put(self, owner: str, user: str, name: str, value: str) -> Fact:
        """Store a fact, or replace the fact of this name. Raises Refusal, MemoryUnavailable."""
        fact = Fact(user, _line(name, "name", MOST_NAME), _line(value, "value", MOST_VALUE), int(self._now()))

        def notify(replaced: bool) -> None:
            for watcher in list(self.watchers) if replaced else ():
                watcher.replaced(owner, fact)
            audit("memory.stored")

        await self._in_thread(owner, lambda: self._put(owner, fact), notify)
        return fact

    async def delete(self, owner: str, user: str | None = None, name: str | None = None) -> int:
        """Delete the facts of a key, of one user or of one name only if given. Return their number.

        Nothing of them is left in the file afterwards. Raises MemoryUnavailable.
        """
        name = None if name is None else " ".join(name.split())

        def notify(count: int) -> None:
            for watcher in list(self.watchers):
                watcher.deleted(owner, user, name)
            audit("memory.deleted", count=count)

        return await self._in_thread(owner, lambda: self._delete(owner, user, name), notify)

    def close(self) -> None:
        """Finish the operation under way, and drop the waiting ones. May be called twice."""
        self._thread.shutdown(cancel_futures=True)

    def _put(self, owner: str, fact: Fact) -> bool:
        with file.transaction(self._path) as db:
            count, size = file.usage(db, owner, fact)
            if count >= self._settings.facts:
                message = f"The memory of this user is full: {count} facts. Delete one first."
                raise Refusal("memory_full", message)
            if size + fact.size > self._settings.key_mb * 1e6:
                message = f"The memory of this API key is full: {self._settings.key_mb:g} MB. Delete facts first."
                raise Refusal("memory_full", message)
            replaced = file.store(db, owner, fact)
            self._is_clean = self._is_clean and not replaced
        self._clean()
        return replaced

    def _delete(self, owner: str, user: str | None, name: str | None) -> int:
        with file.transaction(self._path) as db:
            count = file.delete(db, owner, user, name)
            self._is_clean = self._is_clean and not count
        self._clean()
        return count

    def _clean(self) -> None:
        """Remove the remains of removed facts. If this fails, the next change tries it again."""
        if not self._is_clean:
            file.clean(self._path)
            self._is_clean = True

    async def _in_thread(self, owner: str, work: Callable[[], T], notify: Callable[[T], None]) -> T:
        """Run ``work`` for a key in the store's thread, then ``notify``. Raises MemoryUnavailable.

        Both run even if the caller is cancelled meanwhile.
        """
        if self._waiting[owner] >= MOST_WAITING:
            raise MemoryUnavailable("too many requests wait for its file")
        self._waiting[owner] += 1

        def finish(done: asyncio.Future[T]) -> None:
            self._waiting[owner] -= 1
            if not done.cancelled() and done.exception() is None:
                notify(done.result())

        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        running.add_done_callback(finish)
        try:
            return await asyncio.shield(running)
        except (sqlite3.Error, OSError, ForeignFileError) as error:
            log("memory.failed", error=str(error))
            raise MemoryUnavailable(_reason(error)) from None


def _line(text: str, what: str, most: int) -> str:
    """Return text as one line without spaces around it. Raises Refusal if it is empty, too long or unreadable."""
    line = " ".join(text.split())
    if not 0 < len(line) <= most:
        raise Refusal("invalid_value", f"The {what} must have 1 to {most} characters (got {len(line)}).", what)
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in line):
        raise Refusal("invalid_value", f"The {what} must not contain control characters.", what)
    if what == "name" and "/" in line:
        raise Refusal("invalid_value", "The name must not contain '/'.", what)
    return line


def _reason(error: Exception) -> str:
    """Return why the file can't be used, without its path."""
    match error:
        case sqlite3.Error(sqlite_errorcode=code) if code & _PRIMARY_CODE == sqlite3.SQLITE_BUSY:
            return "another process has locked the file"
        case sqlite3.Error(sqlite_errorcode=code) if code & _PRIMARY_CODE in _DAMAGED:
            return "the file is damaged, or not a SQLite file"
        case OSError():
            return str(error.strerror).lower()
        case _:
            return str(error)
