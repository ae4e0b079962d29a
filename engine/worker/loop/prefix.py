"""The prefix cache: results of one request that later requests of the same session reuse if they begin the same.

It serves next turns, retries, answers that began too early, and side questions: only the new part of a prompt is
computed. Entries are immutable; a request copies an entry into its own slot. Sessions never share entries. The stage
decides what a position is, and what is computed for it.
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
    """A cached prefix."""

    ids: tuple[Hashable, ...]
    """[n] identifiers of its positions: token ids, or hashes of encoded blocks."""
    kept: T
    """The results for these positions."""
    size: int
    """Bytes of ``kept``."""


@dataclass(slots=True)
class Prefixes(Generic[T]):
    """The entries of all sessions, up to ``budget`` bytes. The least recently used are evicted first."""

    budget: int
    size: int = 0
    asked: int = 0
    """Prompt positions that were looked up."""
    found: int = 0
    """Prompt positions that were found."""
    hits: int = 0
    """Lookups that found something."""
    evicted: int = 0
    """Entries that were evicted."""
    _sessions: OrderedDict[str, list[Entry[T]]] = field(default_factory=OrderedDict[str, list[Entry[T]]])

    def find(self, session: str, ids: Sequence[Hashable], before: int = 0) -> tuple[int, T] | None:
        """Find the session's entry with the longest common prefix.

        Args:
            session: The session.
            ids: The positions of the prompt.
            before: The number of positions that the caller already has. It only affects the counters.

        Returns:
            The length of the common prefix and the entry's results; None without a common prefix.
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
        """Add an entry. It replaces the entries that it extends."""
        new = Entry(tuple(ids), kept, size)
        old = self._sessions.pop(session, [])
        self._sessions[session] = [entry for entry in old if new.ids[: len(entry.ids)] != entry.ids] + [new]
        self.size += size - sum(entry.size for entry in old) + sum(e.size for e in self._sessions[session][:-1])
        while self.size > self.budget:
            self._drop()

    def clear(self) -> None:
        """Evict all entries, to free their memory."""
        while self._sessions:
            self._drop()

    @property
    def counts(self) -> Remembered:
        return Remembered(
            asked=self.asked, reused=self.found, hits=self.hits, evicted=self.evicted, held_bytes=self.size
        )

    def _drop(self) -> None:
        """Evict the oldest entry of the least recently used session."""
        session = next(iter(self._sessions))
        self.size -= self._sessions[session].pop(0).size
        self.evicted += 1
        if not self._sessions[session]:
            del self._sessions[session]


def shared(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the length of the longest common prefix, by binary search over slice comparisons."""
    start, end = 0, min(len(one), len(other))
    one, other = tuple(one[:end]), tuple(other[:end])
    while start < end:
        middle = (start + end + 1) // 2
        if one[start:middle] == other[start:middle]:
            start = middle
        else:
            end = middle - 1
    return start
