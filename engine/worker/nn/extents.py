"""Extents of a pool of positions: each slot holds one run of them, side by side. Pure; the rows are moved elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Move:
    """The content of ``count`` positions from ``source`` on goes to ``target``; the two may overlap."""

    source: int
    target: int
    count: int


@dataclass(slots=True)
class Extents:
    """The runs of positions that slots hold of ``size``, in no order. No two overlap."""

    size: int
    held: dict[int, range] = field(default_factory=dict[int, range])

    @property
    def free(self) -> int:
        """Positions that nobody holds."""
        return self.size - sum(map(len, self.held.values()))

    def resize(self, slot: int, count: int) -> list[Move] | None:
        """Give a slot so many positions, with what it has as far as that still fits; 0 lets go of them.

        Returns the moves of content, to be made one after the other. None: so many are not free, and nothing changes.
        An extent grows where it lies if it can; else it moves into the smallest hole that takes it; else all close up.
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
        """Positions that an extent could have where it begins."""
        behind = [extent.start for other, extent in self.held.items() if other != slot and extent.start >= own.stop]
        return min(behind, default=self.size) - own.start if own else 0

    def _holes(self, slot: int) -> list[range]:
        """The runs that nobody holds, were it not for this slot."""
        others = sorted((one for other, one in self.held.items() if other != slot), key=lambda one: one.start)
        edges = [range(0), *others, range(self.size, self.size)]
        return [range(before.stop, after.start) for before, after in pairwise(edges)]

    def _close_up(self, slot: int, count: int) -> list[Move]:
        """Lay all extents side by side from the first position on, in their order; a new one comes last."""
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
