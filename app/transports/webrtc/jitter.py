"""RTP packets back in order, with the least delay: what comes in order goes on at once.

A gap holds up what follows it until the missing packet comes or ``DEPTH`` others have; then it counts as lost.
Whatever comes after its turn is dropped, so no delay ever stays. Sans-I/O; one per stream. Source: RFC 3550, 6.4.1
(sequence numbers of 16 bits that wrap).
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

DEPTH = 2
"""Packets that wait behind a gap: networks that reorder swap neighbours."""

LONGEST_GAP = 50
"""Packets: a second. A larger jump is a new beginning, not a loss."""


class Jitter(Generic[T]):
    """Packets in, packets in order out, whatever is one to who uses it; None stands for one that is lost."""

    def __init__(self) -> None:
        self.late = self.lost = 0
        self._next: int | None = None
        self._held: dict[int, T] = {}

    @property
    def holds(self) -> bool:
        """Whether something waits behind a gap."""
        return bool(self._held)

    def push(self, sequence: int, packet: T) -> list[T | None]:
        """Take the packet with this number; what can go on now."""
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
        """Nothing came for a while: wait for no missing packet any more."""
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
        """Count as lost what is missing before the first packet that is held."""
        expected = self._next or 0
        gap = min(_ahead(sequence, expected) for sequence in self._held)
        self.lost += gap
        self._next = (expected + gap) & 0xFFFF
        return [*[None] * gap, *self._in_order()]


def _ahead(sequence: int, of: int) -> int:
    """Return how far ``sequence`` lies ahead, the shorter way around; negative if it lies behind."""
    return (sequence - of + 0x8000) % 0x10000 - 0x8000
