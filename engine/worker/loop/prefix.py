"""Prefixes: what was computed for one request of a session is kept for others that begin the same.

Next turns, retries, answers that were begun too early and side questions are then all the same: a request is opened,
and only its new part is computed. Entries are immutable; a request takes a copy into its own slot. Sessions never
share. Knows no model: a stage decides what a position is, and what was computed for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.core import Remembered

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """``ids`` [n] name the positions (token ids, hashes of encoded blocks); ``kept`` is what was computed for them."""

    ids: tuple[Hashable, ...]
    kept: T
    size: int
    """Bytes that ``kept`` holds."""


@dataclass(slots=True)
class Prefixes(Generic[T]):
    """The entries of all sessions, at most ``budget`` bytes of them; the longest unused go first."""

    budget: int
    size: int = 0
    asked: int = 0
    """Positions of the prompts that were looked up, and how many of those were there."""
    found: int = 0
    hits: int = 0
    """Look-ups that found something."""
    evicted: int = 0
    """Entries that were forgotten for want of room."""
    _sessions: OrderedDict[str, list[Entry[T]]] = field(default_factory=OrderedDict[str, list[Entry[T]]])

    def find(self, session: str, ids: Sequence[Hashable], before: int = 0) -> tuple[int, T] | None:
        """Return how many of ``ids``, from the first on, the session's best entry shares, and what that entry keeps.

        Whoever asks has the first ``before`` of them already.
        """
        self.asked += len(ids) - before
        if session not in self._sessions:
            return None
        self._sessions.move_to_end(session)
        known = [(shared(entry.ids, ids), entry) for entry in self._sessions[session]]
        length, best = max(known, key=lambda found: found[0])
        self.found += max(0, length - before)
        self.hits += length > before
        return (length, best.kept) if length else None

    def keep(self, session: str, ids: Sequence[Hashable], kept: T, size: int) -> None:
        """Add an entry; it takes the place of those that it goes on from."""
        new = Entry(tuple(ids), kept, size)
        old = self._sessions.pop(session, [])
        self._sessions[session] = [entry for entry in old if new.ids[: len(entry.ids)] != entry.ids] + [new]
        self.size += size - sum(entry.size for entry in old) + sum(e.size for e in self._sessions[session][:-1])
        while self.size > self.budget:
            self._drop()

    def clear(self) -> None:
        """Forget all of them: what is being computed needs the room."""
        while self._sessions:
            self._drop()

    @property
    def counts(self) -> Remembered:
        return Remembered(
            asked=self.asked, reused=self.found, hits=self.hits, evicted=self.evicted, held_bytes=self.size
        )

    def _drop(self) -> None:
        """Forget the oldest entry of the session that has been idle for longest."""
        session = next(iter(self._sessions))
        self.size -= self._sessions[session].pop(0).size
        self.evicted += 1
        if not self._sessions[session]:
            del self._sessions[session]


def shared(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The length of the longest common prefix. Found by halving: equal pieces are compared as a whole."""
    start, end = 0, min(len(one), len(other))
    one, other = tuple(one[:end]), tuple(other[:end])
    while start < end:
        middle = (start + end + 1) // 2
        if one[start:middle] == other[start:middle]:
            start = middle
        else:
            end = middle - 1
    return start
