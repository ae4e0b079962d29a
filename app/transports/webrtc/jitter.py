"""Reorders RTP packets with minimum delay: packets in order are passed on at once.

After a gap, packets wait until the missing packet arrives, or ``DEPTH`` other packets have arrived; then it counts as
lost. A packet that arrives later is dropped, so no delay remains. Sans-I/O; one object per stream.

Source: RFC 3550, 6.4.1 (16-bit sequence numbers that wrap).
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

DEPTH = 2
"""Packets that wait after a gap: networks that reorder swap neighbours."""

LONGEST_GAP = 50
"""Packets in one second. A larger jump is a new start, not a loss."""


class Jitter(Generic[T]):
    """Accepts packets of any type and returns them in order. None represents a lost packet."""

    def __init__(self) -> None:
        self.late = self.lost = 0
        self._next: int | None = None
        self._held: dict[int, T] = {}

    @property
    def holds(self) -> bool:
        """Whether packets wait after a gap."""
        return bool(self._held)

    def push(self, sequence: int, packet: T) -> list[T | None]:
        """Add the packet with this sequence number. Returns the packets that can be passed on."""
        ahead = 0 if self._next is None else _ahead(sequence, self._next)
        if abs(ahead) > LONGEST_GAP:
            out = self.flush()
            self._next = (sequence + 1) & 0xFFFF
            return [*out, packet]
        if ahead < 0 or sequence in self._held:
            self.late += 1
            return []
        self._next = sequence if self._next is None else self._next
        self._held[sequence] = packet
        out = self._in_order()
        return [*out, *self._give_up()] if len(self._held) > DEPTH else out

    def flush(self) -> list[T | None]:
        """Stop waiting for missing packets, since nothing arrived for a while."""
        out: list[T | None] = []
        while self._held:
            out += self._give_up()
        return out

    def _in_order(self) -> list[T | None]:
        out: list[T | None] = []
        while self._next is not None and self._next in self._held:
            out.append(self._held.pop(self._next))
            self._next = (self._next + 1) & 0xFFFF
        return out

    def _give_up(self) -> list[T | None]:
        """Count the packets before the first waiting one as lost."""
        expected = self._next or 0
        gap = min(_ahead(sequence, expected) for sequence in self._held)
        self.lost += gap
        self._next = (expected + gap) & 0xFFFF
        return [*[None] * gap, *self._in_order()]


def _ahead(sequence: int, of: int) -> int:
    """Return how far ``sequence`` is ahead, the shorter way around; negative if it is behind."""
    return (sequence - of + 0x8000) % 0x10000 - 0x8000
