"""Reassembly of a data channel's messages. The cost of a fragment does not depend on the number of waiting fragments.

Replaces aiortc's reassembly, which walks through all waiting fragments for each new one, and keeps them without a
limit.

Source: RFC 9260, 3.3.1 and 6.9 (fragments), RFC 3758, 3.6 (messages given up by the sender).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

MAX_MESSAGE_BYTES = 256 * 1024
"""Maximum bytes of a message, as in aiortc's answers (``a=max-message-size``)."""

MAX_WAITING_BYTES = 2 * 1024 * 1024
"""Maximum bytes of incomplete messages in one connection: twice aiortc's window."""

FRAGMENT_BYTES = 512
"""Overhead of a fragment in bytes: a million fragments of one byte use much more than a megabyte."""

FIRST, LAST, UNORDERED = 2, 1, 4
"""Bits of a fragment's ``flags``."""


class TooLarge(Exception):
    """A message is too large, or too many bytes wait."""


class Fragment(Protocol):
    """A DATA chunk as aiortc reads it: ``tsn`` numbers fragments (32 bits), ``stream_seq`` messages (16 bits)."""

    flags: int
    tsn: int
    stream_id: int
    stream_seq: int
    protocol: int
    user_data: bytes


class QueuedBytes:
    """The waiting bytes in all streams of a connection."""

    def __init__(self, limit: int = MAX_WAITING_BYTES) -> None:
        self._limit = limit
        self.bytes = 0

    def add(self, fragment: Fragment) -> None:
        """Count a fragment. Raises TooLarge."""
        size = len(fragment.user_data) + FRAGMENT_BYTES
        if self.bytes + size > self._limit:
            raise TooLarge(f"More than {self._limit} bytes of unfinished messages wait on the data channel.")
        self.bytes += size

    def remove(self, run: FragmentRun) -> None:
        self.bytes -= run.bytes + FRAGMENT_BYTES * len(run.fragments)


class FragmentRun:
    """Consecutive fragments of one message."""

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
        """Return whether ``other``, whose numbers follow, belongs to the same message."""
        return not (self.last.flags & LAST or other.first.flags & FIRST)

    def joined(self, other: FragmentRun) -> FragmentRun:
        """Return both joined; the shorter one is moved."""
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
        """Return the complete message: its stream id, protocol id and data."""
        return self.first.stream_id, self.first.protocol, b"".join(one.user_data for one in self.fragments)


class Reassembly:
    """The reassembly of one stream, with aiortc's ``InboundStream`` interface. Every fragment is added only once."""

    def __init__(self, waiting: QueuedBytes) -> None:
        self._waiting = waiting
        self._next = 0
        self._by_first: dict[int, FragmentRun] = {}
        self._by_last: dict[int, FragmentRun] = {}
        self._ready: deque[FragmentRun] = deque()
        self._early: dict[int, FragmentRun] = {}  # complete messages after a missing one, by number

    @property
    def sequence_number(self) -> int:
        """The number of the next ordered message."""
        return self._next

    @sequence_number.setter
    def sequence_number(self, number: int) -> None:
        """Give up missing messages before this number. Complete ones are delivered."""
        passed = sorted((one for one in self._early if _is_before(one, number)), key=lambda one: one - number & 0xFFFF)
        self._ready.extend(self._early.pop(one) for one in passed)
        self._next = number

    def add_chunk(self, chunk: Fragment) -> None:
        """Add a fragment. Raises TooLarge."""
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
        """Yield the messages whose turn it is: stream, kind and data."""
        while self._ready or self._next in self._early:
            if self._ready:
                run = self._ready.popleft()
            else:
                run = self._early.pop(self._next)
                self._next = self._next + 1 & 0xFFFF
            self._waiting.remove(run)
            yield run.message()

    def prune_chunks(self, tsn: int) -> int:
        """Drop messages that can't become complete, since nothing up to ``tsn`` will arrive. Returns their bytes."""
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
        else:  # a repeated number
            self._waiting.remove(run)

    def _forget(self, run: FragmentRun) -> None:
        del self._by_first[run.first.tsn]
        del self._by_last[run.last.tsn]


def _step(tsn: int, by: int) -> int:
    return tsn + by & 0xFFFFFFFF


def _reaches(tsn: int, other: int) -> bool:
    """Return whether ``other`` is at or before ``tsn``, modulo 2^32."""
    return tsn - other & 0xFFFFFFFF < 0x80000000


def _is_before(number: int, other: int) -> bool:
    """Return whether a message's number is before another one, modulo 2^16."""
    return number - other & 0xFFFF >= 0x8000


def _may_go_on(run: FragmentRun, tsn: int) -> bool:
    """Return whether the run starts its message, and its continuation may still arrive."""
    return bool(run.first.flags & FIRST) and _reaches(run.last.tsn, tsn)
