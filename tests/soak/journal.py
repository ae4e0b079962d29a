"""What a soak writes down as it goes: one JSON object a line, by all of its processes, into one file.

A line is one write to a file that is open for appending, so lines of two processes never mix. A process that is killed
may leave half a line: it is skipped when the file is read, and the next line begins anew. Times are monotonic seconds,
which the processes of one machine share; ``life`` counts the starts of the server in one folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec


class Line(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What all lines have."""

    life: int
    at_s: float


class Started(Line, frozen=True, tag=True):
    """A server is green, and its users come: so many at once."""

    date: str
    users: int
    capacity: int | None = None
    """The number of users at once that this machine carries; None where the number of users was given."""


class Answer(Line, frozen=True, tag=True):
    """One answer that a user heard to its end, or waited for in vain. ``at_s`` is when that was."""

    user: str
    way: str
    outcome: str
    first_s: float | None = None
    """Seconds to its first audible sound: from the end of speech, or from the question that was typed."""
    sound_s: float = 0.0
    gaps: tuple[tuple[float, float], ...] = ()
    """The underruns: from when until when."""


class Done(Line, frozen=True, tag=True):
    """A user has done something, as ``way`` names it."""

    user: str
    way: str


class Lag(Line, frozen=True, tag=True):
    """The longest time in which the users' own process did not come to read its sockets, since the line before."""

    longest_s: float


class Fault(Line, frozen=True, tag=True):
    """What was broken on purpose, and the time until which it may be heard: by one user, or by all."""

    kind: str
    until_s: float
    user: str | None = None
    note: str = ""


class Lost(Line, frozen=True, tag=True):
    """A worker that nobody killed is gone, or was given up; another one has its place."""

    place: str


class Look(Line, frozen=True, tag=True):
    """The server and its machine at a moment under load."""

    memory_mb: dict[str, float]
    """Of each process that counts: what is its own (see ``memory``)."""
    rss_mb: dict[str, float]
    pss_mb: dict[str, float]
    tasks: int
    files: int
    threads: int
    sessions: int
    prefix_mb: float
    cores: dict[str, float]
    """Cores kept busy since the look before: by the server, its workers, the users, and by all else."""


class Rest(Line, frozen=True, tag=True):
    """The server with nobody there: before the load (``base``) and after it (``end``)."""

    when: str
    memory_mb: float
    files: int
    threads: int
    tasks: int
    sessions: int
    leased: int


Entry = Started | Answer | Done | Lag | Fault | Lost | Look | Rest


class Journal:
    """The file, open for appending."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)

    def add(self, entry: Entry) -> None:
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def read(path: Path) -> list[Entry]:
    """Return what was written so far; of a line that was cut off, nothing."""
    decoder, found = msgspec.json.Decoder[Entry](Entry), list[Entry]()
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError:
            continue
    return found
