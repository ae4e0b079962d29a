"""Allocation of contiguous ranges in a pool of positions, one range per slot. Only plans moves; the caller copies
data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Move:
    """Moves ``count`` positions from ``source`` to ``target``; the ranges may overlap."""

    source: int
    target: int
    count: int


@dataclass(slots=True)
class Extents:
    """Allocated ranges of a pool with ``size`` positions. Ranges do not overlap and are in no order."""

    size: int
    held: dict[int, range] = field(default_factory=dict[int, range])

    @property
    def free(self) -> int:
        """Number of unallocated positions."""
        return self.size - sum(map(len, self.held.values()))

    def resize(self, slot: int, count: int) -> list[Move] | None:
        """Resize a slot's range, keeping its content; 0 frees it.

        A range grows in place if possible. Otherwise it moves to the smallest hole that fits, or else all ranges are
        compacted.

        Returns:
            The moves of content, to be made in order, or None if too few positions are free (then nothing changes).
        """
        own = self.held.get(slot, range(0))
        if count - len(own) > self.free:
            return None
        if count <= len(own) or count <= self._most(slot, own):
            self._place(slot, range(own.start, own.start + count))
            return []
        holes = [hole for hole in self._holes(slot) if len(hole) >= count]
        if not holes:
            return self._close_up(slot, count)
        target = min(holes, key=len).start
        self._place(slot, range(target, target + count))
        return [Move(own.start, target, len(own))] if own else []

    def _most(self, slot: int, own: range) -> int:
        """Maximum length this extent can grow to without moving."""
        behind = [extent.start for other, extent in self.held.items() if other != slot and extent.start >= own.stop]
        return min(behind, default=self.size) - own.start if own else 0

    def _holes(self, slot: int) -> list[range]:
        """Return the unallocated ranges, treating this slot's range as free."""
        others = sorted((one for other, one in self.held.items() if other != slot), key=lambda one: one.start)
        edges = [range(0), *others, range(self.size, self.size)]
        return [range(before.stop, after.start) for before, after in pairwise(edges)]

    def _close_up(self, slot: int, count: int) -> list[Move]:
        """Compact all ranges to the start of the pool, in their order; a new one comes last."""
        before = dict(sorted(self.held.items(), key=lambda item: item[1].start))
        start, moves = 0, list[Move]()
        for one in before | {slot: range(count)}:
            own = before.get(one, range(0))
            if own and own.start != start:
                moves.append(Move(own.start, start, len(own)))
            self._place(one, range(start, start + (count if one == slot else len(own))))
            start = self.held[one].stop
        down = [move for move in moves if move.target < move.source]
        return down + [move for move in reversed(moves) if move.target > move.source]

    def _place(self, slot: int, extent: range) -> None:
        self.held.pop(slot, None)
        if extent:
            self.held[slot] = extent
