"""A data channel's messages, put together from their fragments: each fragment costs the same, however many wait.

Takes the place of aiortc's own reassembly, which walks all that waits for each fragment, and keeps it without a bound.
Knows no socket. Source: RFC 9260, 3.3.1 and 6.9 (fragments), RFC 3758, 3.6 (what the sender gives up).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

MAX_MESSAGE_BYTES = 256 * 1024
"""The longest message, as aiortc's answers tell it (``a=max-message-size``)."""

MAX_WAITING_BYTES = 2 * 1024 * 1024
"""Bytes that may wait for their missing pieces in one connection: the window that aiortc offers is half of it."""

FRAGMENT_BYTES = 512
"""Bytes that a fragment takes beside its data: a million of one byte are not a megabyte."""

FIRST, LAST, UNORDERED = 2, 1, 4
"""Bits of a fragment's ``flags``."""


class TooLarge(Exception):
    """The error of a message that is too large, or of too much that waits."""


class Fragment(Protocol):
    """A DATA chunk, as aiortc reads it: ``tsn`` numbers fragments (32 bits), ``stream_seq`` messages (16 bits)."""

    flags: int
    tsn: int
    stream_id: int
    stream_seq: int
    protocol: int
    user_data: bytes


class QueuedBytes:
    """The amount that waits in all streams of a connection."""

    def __init__(self, limit: int = MAX_WAITING_BYTES) -> None:
        self._limit = limit
        self.bytes = 0

    def add(self, fragment: Fragment) -> None:
        """Raises TooLarge."""
        size = len(fragment.user_data) + FRAGMENT_BYTES
        if self.bytes + size > self._limit:
            raise TooLarge(f"More than {self._limit} bytes of unfinished messages wait on the data channel.")
        self.bytes += size

    def remove(self, run: FragmentRun) -> None:
        self.bytes -= run.bytes + FRAGMENT_BYTES * len(run.fragments)


class FragmentRun:
    """Fragments of one message whose numbers follow each other."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragments = deque([fragment])
        self.bytes = len(fragment.user_data)

    @property
    def first(self) -> Fragment:
        return self.fragments[0]

    @property
    def last(self) -> Fragment:
        return self.fragments[-1]

    @property
    def whole(self) -> bool:
        return bool(self.first.flags & FIRST and self.last.flags & LAST)

    def goes_on_with(self, other: FragmentRun) -> bool:
        """Whether ``other``, whose numbers follow, is of the same message."""
        return not (self.last.flags & LAST or other.first.flags & FIRST)

    def joined(self, other: FragmentRun) -> FragmentRun:
        """Both; the shorter one is moved."""
        total = self.bytes + other.bytes
        if len(self.fragments) >= len(other.fragments):
            self.fragments.extend(other.fragments)
            run = self
        else:
            other.fragments.extendleft(reversed(self.fragments))
            run = other
        run.bytes = total
        return run

    def message(self) -> tuple[int, int, bytes]:
        """Its stream, its kind, and its data."""
        return self.first.stream_id, self.first.protocol, b"".join(one.user_data for one in self.fragments)


class Reassembly:
    """The reassembly of one stream, with all that aiortc asks of its ``InboundStream``; every fragment comes once."""

    def __init__(self, waiting: QueuedBytes) -> None:
        self._waiting = waiting
        self._next = 0
        self._by_first: dict[int, FragmentRun] = {}
        self._by_last: dict[int, FragmentRun] = {}
        self._ready: deque[FragmentRun] = deque()
        self._early: dict[int, FragmentRun] = {}  # whole, behind a message that is missing: by its number

    @property
    def sequence_number(self) -> int:
        """The number of the next message, among those in order."""
        return self._next

    @sequence_number.setter
    def sequence_number(self, number: int) -> None:
        """Give up the missing messages before that number; those that are there are delivered."""
        passed = sorted((one for one in self._early if _is_before(one, number)), key=lambda one: one - number & 0xFFFF)
        self._ready.extend(self._early.pop(one) for one in passed)
        self._next = number

    def add_chunk(self, chunk: Fragment) -> None:
        """Take a fragment. Raises TooLarge."""
        self._waiting.add(chunk)
        run = FragmentRun(chunk)
        before = self._by_last.get(_step(chunk.tsn, -1))
        if before is not None and before.goes_on_with(run):
            self._forget(before)
            run = before.joined(run)
        after = self._by_first.get(_step(chunk.tsn, 1))
        if after is not None and run.goes_on_with(after):
            self._forget(after)
            run = run.joined(after)
        if run.bytes > MAX_MESSAGE_BYTES:
            raise TooLarge(f"A message on the data channel has more than {MAX_MESSAGE_BYTES} bytes.")
        if run.whole:
            self._finish(run)
        else:
            self._by_first[run.first.tsn] = self._by_last[run.last.tsn] = run

    def pop_messages(self) -> Iterator[tuple[int, int, bytes]]:
        """The messages whose turn it is: their stream, their kind, their data."""
        while self._ready or self._next in self._early:
            if self._ready:
                run = self._ready.popleft()
            else:
                run = self._early.pop(self._next)
                self._next = self._next + 1 & 0xFFFF
            self._waiting.remove(run)
            yield run.message()

    def prune_chunks(self, tsn: int) -> int:
        """Forget what can't become whole, since nothing up to ``tsn`` comes any more; how many bytes that were."""
        lost = [run for run in self._by_first.values() if _reaches(tsn, run.first.tsn) and not _may_go_on(run, tsn)]
        for run in lost:
            self._forget(run)
            self._waiting.remove(run)
        return sum(run.bytes for run in lost)

    def _finish(self, run: FragmentRun) -> None:
        number = run.first.stream_seq
        if run.first.flags & UNORDERED or _is_before(number, self._next):
            self._ready.append(run)
        elif number not in self._early:
            self._early[number] = run
        else:  # its number was used before
            self._waiting.remove(run)

    def _forget(self, run: FragmentRun) -> None:
        del self._by_first[run.first.tsn]
        del self._by_last[run.last.tsn]


def _step(tsn: int, by: int) -> int:
    return tsn + by & 0xFFFFFFFF


def _reaches(tsn: int, other: int) -> bool:
    """Whether ``other`` is ``tsn`` or lies behind it, on a circle of 32 bits."""
    return tsn - other & 0xFFFFFFFF < 0x80000000


def _is_before(number: int, other: int) -> bool:
    """Whether a message's number comes before another one, on a circle of 16 bits."""
    return number - other & 0xFFFF >= 0x8000


def _may_go_on(run: FragmentRun, tsn: int) -> bool:
    """Whether the run begins its message, and what would follow it may still come."""
    return bool(run.first.flags & FIRST) and _reaches(run.last.tsn, tsn)
