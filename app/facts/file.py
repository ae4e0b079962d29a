"""The SQLite file with the facts. All functions block; they raise sqlite3.Error, OSError and ForeignFileError.

Each operation opens the file anew, so that it notices a file that was moved, replaced or repaired.

Deleted text must not stay in the file. SQLite's ``secure_delete`` is not enough: when rows move between pages, copies
of them stay in the unused parts. VACUUM therefore rewrites the file after every removal. There is no write-ahead log,
which would keep removed text as well.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = 1
"""The version of the tables, which the file holds as SQLite's ``user_version``."""
BUSY_S = 0.25
"""Seconds to wait for another process that has locked the file."""

_SCHEMA = """
CREATE TABLE facts (
    owner TEXT NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (owner, user, name)
) WITHOUT ROWID
"""
_BYTES = "length(CAST(user AS BLOB)) + length(CAST(name AS BLOB)) + length(CAST(value AS BLOB))"


class ForeignFileError(Exception):
    """A SQLite file that this version of the server can't use."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact about a user."""

    user: str
    name: str
    value: str
    updated_at: int
    """Unix time in seconds."""

    @property
    def size(self) -> int:
        """Return the bytes of its text."""
        return sum(len(text.encode()) for text in (self.user, self.name, self.value))


def prepare(path: Path) -> None:
    """Create the file, which only its owner may read, unless it exists. Remove remains of deleted facts from it."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    with transaction(path):
        pass
    clean(path)


@contextmanager
def transaction(path: Path) -> Generator[sqlite3.Connection]:
    """Open the file for one transaction. It is rolled back if the block raises an error."""
    with _connected(path) as db:
        db.execute("BEGIN IMMEDIATE")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise ForeignFileError("it was written by a newer version of this server")
        if version == 0:
            if db.execute("SELECT * FROM sqlite_master").fetchone() is not None:
                raise ForeignFileError("it is the database of another program")
            db.execute(_SCHEMA)
            db.execute(f"PRAGMA user_version = {VERSION}")
        yield db
        db.execute("COMMIT")


def clean(path: Path) -> None:
    """Rewrite the file without any remains of removed text."""
    with _connected(path) as db:
        db.execute("VACUUM")


def select(db: sqlite3.Connection, owner: str, user: str | None) -> tuple[Fact, ...]:
    """Return the facts of a user, or of all users of a key, in the order in which they were stored."""
    query = "SELECT user, name, value, updated_at FROM facts WHERE owner = ? AND (? IS NULL OR user = ?)"
    return tuple(Fact(*row) for row in db.execute(f"{query} ORDER BY user, updated_at, name", (owner, user, user)))


def usage(db: sqlite3.Connection, owner: str, fact: Fact) -> tuple[int, int]:
    """Return the number of the user's facts and the bytes of the key's facts, both without the one of this name."""
    where = "FROM facts WHERE owner = ? AND (user, name) != (?, ?)"
    names = (owner, fact.user, fact.name)
    (count,) = db.execute(f"SELECT count(*) {where} AND user = ?", (*names, fact.user)).fetchone()
    (size,) = db.execute(f"SELECT coalesce(sum({_BYTES}), 0) {where}", names).fetchone()
    return count, size


def store(db: sqlite3.Connection, owner: str, fact: Fact) -> bool:
    """Store a fact. Return whether it replaced one of the same name."""
    replaced = delete(db, owner, fact.user, fact.name) > 0
    row = (owner, fact.user, fact.name, fact.value, fact.updated_at)
    db.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", row)
    return replaced


def delete(db: sqlite3.Connection, owner: str, user: str | None, name: str | None) -> int:
    """Delete the facts of a key, of one user or of one name only if given. Return their number."""
    where = "owner = ? AND (? IS NULL OR user = ?) AND (? IS NULL OR name = ?)"
    return db.execute(f"DELETE FROM facts WHERE {where}", (owner, user, user, name, name)).rowcount


@contextmanager
def _connected(path: Path) -> Generator[sqlite3.Connection]:
    address = f"{path.absolute().as_uri()}?mode=rw"  # never creates the file, whose mode matters
    with closing(sqlite3.connect(address, timeout=BUSY_S, isolation_level=None, uri=True)) as db:
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")  # VACUUM would otherwise copy all facts to a temporary file
        db.execute("PRAGMA journal_mode = DELETE")
        yield db
