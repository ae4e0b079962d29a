"""One file of a model: all of it, checked, or nothing but what a later try goes on from. Knows no catalogue."""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from app.pulling.errors import PullError, TryAgain
from app.pulling.hub import Hub

TRIES = 5  # in a row that bring nothing
PIECE = 1 << 20  # bytes of a file that are read and hashed at a time
PAUSE_S = 1.0  # before the second try; then twice as long each time


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file as it has to be. Of ``sha256`` and ``git_sha1``, at least one is known."""

    repository: str
    commit: str
    path: str
    size: int
    sha256: str | None = None
    git_sha1: str | None = None


@dataclass(slots=True)
class Download:
    """A download that brings files to where they belong. ``progress`` is called with the bytes that have come (back, if
    below 0)."""

    hub: Hub
    progress: Callable[[int], None]
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, file: Wanted, target: Path) -> str:
        """Get a file, going on where an earlier try ended; its SHA-256. Raises PullError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.{file.commit[:8]}.part")
        self.progress(_size(part))
        failures = 0
        while (had := _size(part)) != file.size or not part.exists():
            try:
                self._append(file, part, had)
            except TryAgain as error:
                failures = 0 if _size(part) > had else failures + 1
                if failures == TRIES:
                    raise PullError(f"{error}; what has come is kept, run the command again later") from error
                self.sleep(PAUSE_S * 2 ** max(failures - 1, 0))
        sha256 = checked(file, part)
        part.replace(target)
        return sha256

    def _append(self, file: Wanted, part: Path, had: int) -> None:
        """Bring the rest of a file, as far as it comes."""
        with self.hub.content(file.repository, file.commit, file.path, had) as (start, pieces):
            self.progress(start - had)
            with writing(part), part.open("r+b" if start else "wb") as out:
                out.seek(start)
                for piece in pieces:
                    if out.tell() + len(piece) > file.size:
                        part.unlink()
                        raise PullError(f"{file.path} is longer than the {file.size} bytes that it should have")
                    out.write(piece)
                    self.progress(len(piece))
        if _size(part) < file.size:
            raise TryAgain(f"{file.path} broke off after {_size(part)} of {file.size} bytes")


class writing:
    """A block that writes a file: a full disk is told in a sentence."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "the disk is full; what has come is kept" if full else error.strerror
            raise PullError(f"{self._path}: {reason}") from error


def checked(file: Wanted, path: Path) -> str:
    """The SHA-256 of a file that is what it should be; another one is removed. Raises PullError."""
    sha256, git_sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    for piece in pieces_of(path):
        sha256.update(piece)
        git_sha1.update(piece)
    wrong = file.sha256 not in (None, sha256.hexdigest()) or file.git_sha1 not in (None, git_sha1.hexdigest())
    if wrong:
        path.unlink()
        raise PullError(
            f"{file.path}: what came is not what it should be (its hash is {sha256.hexdigest()}); it was removed"
        )
    return sha256.hexdigest()


def pieces_of(path: Path) -> Iterable[bytes]:
    """A file's bytes."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
