"""Slots of a preallocated KV cache, and which rows of a forward go to which of them. Knows no layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn.device import to_device
from engine.worker.nn.extents import Extents, Move
from engine.worker.nn.kernel_loading import Kernels

BLOCK = 512  # positions that are moved at once, of all layers: a copy of them is the memory that it takes


class KvSlots:
    """Keys and values of every layer: [layers, heads, positions, dim] each. A slot belongs to one request, and has a
    run of positions side by side.

    That is ``length`` positions for every slot; or, where all slots share so many ``positions``, what ``resize`` gave.
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        heads: int,
        length: int,
        dim: int,
        device: torch.device,
        dtype: torch.dtype,
        positions: int | None = None,
    ) -> None:
        self.length = length
        self.shared = positions is not None
        self.extents = Extents(slots * length if positions is None else positions)
        nobodys = int(self.shared)  # a row for a slot that has no position
        self.keys = torch.zeros(layers, heads, self.extents.size + nobodys, dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        if positions is None:
            self.extents.held = {slot: range(slot * length, (slot + 1) * length) for slot in range(slots)}
        self.begins = to_device([self.begin(slot) for slot in range(slots)], device)
        """The first position of every slot [slots]: it stays where it is, as a graph reads it."""

    @property
    def device(self) -> torch.device:
        return self.keys.device

    def begin(self, slot: int) -> int:
        """Return where a slot's positions begin."""
        extent = self.extents.held.get(slot)
        return extent.start if extent is not None else self.extents.size

    def resize(self, slot: int, count: int) -> bool:
        """Give a slot of a shared cache so many positions, with what lies in its first ones; 0 lets go of them.

        False where so many are not free, and nothing changes. Other slots may move, too, with all that they have.
        """
        moves = self.extents.resize(slot, count)
        if moves is None:
            return False
        for move in moves:
            self._move(move)
        self.begins.copy_(to_device([self.begin(one) for one in range(len(self.begins))], self.device))
        return True

    def _move(self, move: Move) -> None:
        """Move content block by block, in the order in which nothing is overwritten before it is read."""
        firsts = range(0, move.count, BLOCK)
        for first in firsts if move.target < move.source else reversed(firsts):
            source, target = (
                slice(at + first, at + min(first + BLOCK, move.count)) for at in (move.source, move.target)
            )
            self.keys[:, :, target] = self.keys[:, :, source].clone()
            self.values[:, :, target] = self.values[:, :, source].clone()

    def copy(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """The first ``length`` keys and values of a slot [layers, heads, length, dim], as they are now."""
        own = slice(self.begin(slot), self.begin(slot) + length)
        return self.keys[:, :, own].clone(), self.values[:, :, own].clone()

    def restore(self, slot: int, keys: Tensor, values: Tensor, start: int, end: int) -> None:
        """Put rows that were copied, from ``start`` to ``end``, into a slot."""
        own = slice(self.begin(slot) + start, self.begin(slot) + end)
        self.keys[:, :, own] = keys[:, :, start:end]
        self.values[:, :, own] = values[:, :, start:end]

    def clear(self, slot: int) -> None:
        """Forget a slot whose rows may be NaN: a masked NaN still poisons what it is multiplied with."""
        extent = self.extents.held.get(slot, range(0))
        self.keys[:, :, extent.start : extent.stop] = 0
        self.values[:, :, extent.start : extent.stop] = 0


@dataclass(frozen=True, slots=True)
class SlotView:
    """Some requests of a batch (``part``) whose slots begin ``stride`` positions apart: what they look back at is read
    in place, from ``begin`` on and up to ``end``; ``mask`` says who sees whom, or is None where all see all. Those that
    start alike (``together``) are written in place, too.
    """

    part: slice
    begin: int
    stride: int
    end: int
    mask: Tensor | None
    together: bool

    @classmethod
    def of(
        cls, begins: Sequence[int], starts: Sequence[int], count: int, device: torch.device, first: int = 0
    ) -> SlotView:
        end, part = max(starts) + count, slice(first, first + len(begins))
        alike = min(starts) == max(starts)
        mask = None if alike and count == 1 else _causal(starts, count, device)
        return cls(part, begins[0], begins[1] - begins[0] if len(begins) > 1 else 0, end, mask, alike)

    def past(self, cache: Tensor) -> Tensor:
        """Return what these requests may look at [requests, heads, end, dim], of one layer's cache."""
        heads, dim = cache.shape[0], cache.shape[2]
        (over, along, _), first = cache.stride(), cache.storage_offset() + self.begin * cache.stride(1)
        shape = self.part.stop - self.part.start, heads, self.end, dim
        return cache.as_strided(shape, (self.stride * along, over, along, 1), first)


def _causal(starts: Sequence[int], count: int, device: torch.device) -> Tensor:
    """A mask [batch, 1, rows, end]: rows behind their starts see all before them, and themselves."""
    at = to_device(starts, device)[:, None] + torch.arange(count, device=device)
    return (torch.arange(max(starts) + count, device=device) <= at[..., None])[:, None]


@dataclass(frozen=True, slots=True)
class CachePositions:
    """Cache positions for the rows of one forward: the same number of rows for each slot, appended at its start.

    ``index`` are slots [batch], ``at`` positions of the cache [batch, rows]. Slots an even distance apart are one view;
    on a CPU, others are each their own. Elsewhere what they look back at is gathered: ``seen`` [batch, end] are its
    positions, of which ``mask`` says who sees which.
    """

    index: Tensor
    at: Tensor
    views: tuple[SlotView, ...]
    seen: Tensor | None = None
    mask: Tensor | None = None

    @classmethod
    def of(cls, cache: KvSlots, slots: Sequence[int], starts: Sequence[int], count: int) -> CachePositions:
        device, begins = cache.device, [cache.begin(slot) for slot in slots]
        own = to_device([sum(one) for one in zip(begins, starts, strict=True)], device)
        index, at = to_device(slots, device), own[:, None] + torch.arange(count, device=device)
        alike, apart = min(starts) == max(starts), {b - a for a, b in pairwise(begins)}
        # Slots of a shared cache end anywhere: none may look beyond its own rows, where another's may be NaN.
        if not apart or (len(apart) == 1 and min(apart) > 0 and (alike or not cache.shared)):
            return cls(index, at, (SlotView.of(begins, starts, count, device),))
        if in_place(device):
            each = enumerate(zip(begins, starts, strict=True))
            return cls(index, at, tuple(SlotView.of([begin], [start], count, device, i) for i, (begin, start) in each))
        columns = torch.arange(max(starts) + count, device=device)
        last = to_device(starts, device)[:, None] + count - 1
        seen = to_device(begins, device)[:, None] + torch.minimum(columns, last)
        return cls(index, at, (), seen, None if alike and count == 1 else _causal(starts, count, device))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Append keys and values [batch, heads, rows, dim] to one layer's cache [heads, positions, dim]; what queries
        make of what they see."""
        if len(self.views) == 1 and self.views[0].together:
            past = self.views[0].past(keys), self.views[0].past(values)
            past[0][:, :, -key.shape[2] :], past[1][:, :, -key.shape[2] :] = key, value
            return _attend(query, *past, self.views[0].mask)
        keys[:, self.at], values[:, self.at] = key.transpose(0, 1), value.transpose(0, 1)
        return self.look(query, keys, values)

    def look(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The same behind keys and values that have been written."""
        if self.seen is not None:
            return attended(query, gathered(keys, self.seen), gathered(values, self.seen), self.mask)
        mixed = [_attend(query[view.part], view.past(keys), view.past(values), view.mask) for view in self.views]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def in_place(device: torch.device) -> bool:
    """Whether attention request by request costs less than one behind a gather, to which a launch is what costs."""
    return device.type == "cpu"


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    if not in_place(query.device):
        return attended(query, keys, values, mask)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


@dataclass(frozen=True)
class VarlenBatch:
    """Cache positions for rows of which each slot has its own number: one slot's behind another's, in a batch of one.

    Each slot's attention is its own; all else is one product. A slot may come twice, in order: its later rows see the
    earlier ones.
    """

    cache: KvSlots
    slots: Sequence[int]
    starts: Sequence[int]
    counts: Sequence[int]

    @cached_property
    def parts(self) -> list[CachePositions]:
        """Pieces side by side that have as many rows as each other are one attention on a GPU, to which a launch is
        what costs; on a CPU each is its own."""
        numbers, apart = range(len(self.slots)), in_place(self.cache.device)
        alike = [list(part) for _, part in groupby(numbers, lambda i: (self.counts[i], apart and i))]
        return [
            CachePositions.of(
                self.cache, [self.slots[i] for i in part], [self.starts[i] for i in part], self.counts[part[0]]
            )
            for part in alike
        ]

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.mix."""
        sizes = [part.at.numel() for part in self.parts]
        pieces = zip(self.parts, *(heads.split(sizes, 2) for heads in (query, key, value)), strict=True)
        return torch.cat([_apart(part, heads, keys, values) for part, *heads in pieces], 2)


@dataclass(frozen=True, slots=True)
class PiecesInPlace:
    """The same where a kernel attends to all pieces in one: ``at`` [1, rows] are the rows' positions of the cache."""

    at: Tensor
    blocks: Tensor
    kernels: Kernels

    @classmethod
    def of(
        cls, cache: KvSlots, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], kernels: Kernels
    ) -> PiecesInPlace:
        at, blocks = pieces_in_place(cache, slots, starts, counts, kernels)
        return cls(to_device(at, cache.device)[None], to_device(blocks, cache.device), kernels)

    def look(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.look."""
        return self.kernels.varlen(query, keys, values, self.blocks)


def pieces_in_place(
    cache: KvSlots,
    slots: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    kernels: Kernels,
    idle: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the cache [rows], and the blocks of which kernels make one attention. ``idle`` rows behind the
    pieces' are nobody's: they see nothing, and the last slot is theirs."""
    begins = [cache.begin(slot) for slot in slots]
    own = [np.arange(n) + begin + start for begin, start, n in zip(begins, starts, counts, strict=True)]
    at = np.concatenate((*own, np.full(idle, cache.begin(len(cache.begins) - 1))))
    return at, kernels.cut([*begins, 0], [*starts, -idle], [*counts, idle])


def _apart(part: CachePositions, heads: Sequence[Tensor], keys: Tensor, values: Tensor) -> Tensor:
    """Attend with pieces [1, heads, pieces · rows, dim] (queries, keys, values) to what they may see."""
    query, key, value = (one[0].unflatten(1, part.at.shape).transpose(0, 1) for one in heads)
    mixed = part.mix(query, key, value, keys, values)
    return mixed.transpose(0, 1).flatten(1, 2)[None]


@dataclass(frozen=True, slots=True)
class DecodeSlots:
    """Cache positions for one row a slot, at a position that the device alone knows: shapes are the host's.

    ``index`` are slots, ``at`` positions of the cache [batch]. ``seen`` [batch, length] are the first ``length`` ones
    of each slot, of which those behind its own row are the row's own again; ``mask`` [batch, 1, 1, length] bars them.
    """

    index: Tensor
    at: Tensor
    seen: Tensor
    mask: Tensor

    @classmethod
    def of(cls, cache: KvSlots, slots: Tensor, starts: Tensor, length: int) -> DecodeSlots:
        columns, begins = torch.arange(length, device=starts.device), cache.begins[slots]
        beyond = columns > starts[:, None]
        mask = torch.zeros(beyond.shape, device=starts.device, dtype=cache.keys.dtype).masked_fill(beyond, -torch.inf)
        seen = begins[:, None] + torch.minimum(columns, starts[:, None])
        return cls(slots, begins + starts, seen, mask[:, None, None])

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.mix."""
        keys[:, self.at], values[:, self.at] = key[:, :, 0].transpose(0, 1), value[:, :, 0].transpose(0, 1)
        return attended(query, gathered(keys, self.seen), gathered(values, self.seen), self.mask)


@dataclass(frozen=True, slots=True)
class SlotsInPlace:
    """The same where a kernel looks back, which reads slots ``index`` where they lie: a row sees ``lengths`` positions
    [batch] from ``begins`` [batch] on, the last of which is its own, ``at`` [batch]. No slot has more than ``longest``.
    """

    index: Tensor
    at: Tensor
    begins: Tensor
    lengths: Tensor
    longest: int
    kernels: Kernels

    @classmethod
    def of(cls, cache: KvSlots, slots: Tensor, starts: Tensor, kernels: Kernels) -> SlotsInPlace:
        begins = cache.begins[slots]
        return cls(slots, begins + starts, begins, starts + 1, cache.length, kernels)

    def look(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.look."""
        return self.kernels.attend(query, keys, values, self.begins, self.lengths, self.longest)


def gathered(cache: Tensor, positions: Tensor) -> Tensor:
    """Return positions [batch, n] of one layer's cache as [batch, heads, n, dim]."""
    return cache[:, positions].transpose(0, 1)


def attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with queries [batch, heads, rows, dim] to fewer heads of keys and values; ``mask`` [batch, 1, rows,
    length].

    Queries that share a head are its rows: no kernel that takes a mask shares heads, and without that keys are copied.
    """
    batch, heads, count, dim = query.shape
    group = heads // keys.shape[1]
    folded = query.reshape(batch, heads // group, group * count, dim)
    if mask is not None and count > 1:
        mask = mask.repeat(1, 1, group, 1)
    return F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask).reshape(query.shape)


OneRow = DecodeSlots | SlotsInPlace


class Where(Protocol):
    """The place in a cache to which the rows of a forward go."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.mix."""
        ...


InPlace = CachePositions | PiecesInPlace | SlotsInPlace
"""The same where kernels write them."""


@dataclass(slots=True)
class Batch:
    """Rows of several requests that go through a stack together, each at the end of its slot."""

    slots: list[int] = field(default_factory=list[int])
    starts: list[int] = field(default_factory=list[int])
    embeddings: list[Tensor] = field(default_factory=list[Tensor])
    positions: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])

    def add(self, slot: int, start: int, embeddings: Tensor, positions: NDArray[np.float32]) -> None:
        """Rows [count, width] behind the first ``start`` of a slot, at rope positions [axes, count]."""
        self.slots.append(slot)
        self.starts.append(start)
        self.embeddings.append(embeddings)
        self.positions.append(positions)

    def parts(self, positions: int, pieces: int) -> list[Batch]:
        """Batches of at most so many positions and pieces, in this one's order; no piece has more."""
        found, room = [Batch()], positions
        for slot, start, embeddings, at in zip(self.slots, self.starts, self.embeddings, self.positions, strict=True):
            if len(embeddings) > room or len(found[-1]) == pieces:
                found.append(Batch())
                room = positions
            found[-1].add(slot, start, embeddings, at)
            room -= len(embeddings)
        return found

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def counts(self) -> list[int]:
        return [len(embeddings) for embeddings in self.embeddings]

    @property
    def lasts(self) -> list[int]:
        """Return where each slot's last row is among all."""
        return [int(end) - 1 for end in np.cumsum(self.counts)]
