"""Slots of a preallocated KV cache, and the cache positions of a forward pass's rows."""

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

BLOCK = 512  # positions moved at once; bounds the memory of the temporary copy


class KvSlots:
    """Keys and values of every layer, [layers, heads, positions, dim] each.

    A slot belongs to one request and has a contiguous range of positions: ``length`` per slot, or, if all slots share
    ``positions``, as many as ``resize`` allocated.
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
        nobodys = int(self.shared)  # a position for slots without any
        self.keys = torch.zeros(layers, heads, self.extents.size + nobodys, dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        if positions is None:
            self.extents.held = {slot: range(slot * length, (slot + 1) * length) for slot in range(slots)}
        self.begins = to_device([self.begin(slot) for slot in range(slots)], device)
        """First position of each slot [slots]; updated in place, because graphs read it."""

    @property
    def device(self) -> torch.device:
        return self.keys.device

    def begin(self, slot: int) -> int:
        """Return the cache position at which a slot's range begins; for a slot without one, the spare position."""
        extent = self.extents.held.get(slot)
        return extent.start if extent is not None else self.extents.size

    def resize(self, slot: int, count: int) -> bool:
        """Resize a slot's range in a shared cache, keeping its content; 0 frees it. Other slots may move.

        Returns False if too few positions are free; then nothing changes.
        """
        moves = self.extents.resize(slot, count)
        if moves is None:
            return False
        for move in moves:
            self._move(move)
        self.begins.copy_(to_device([self.begin(one) for one in range(len(self.begins))], self.device))
        return True

    def _move(self, move: Move) -> None:
        """Move content block by block, in an order that overwrites nothing before it is read."""
        firsts = range(0, move.count, BLOCK)
        for first in firsts if move.target < move.source else reversed(firsts):
            source, target = (
                slice(at + first, at + min(first + BLOCK, move.count)) for at in (move.source, move.target)
            )
            self.keys[:, :, target] = self.keys[:, :, source].clone()
            self.values[:, :, target] = self.values[:, :, source].clone()

    def copy(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """Return a copy of a slot's first ``length`` keys and values [layers, heads, length, dim]."""
        own = slice(self.begin(slot), self.begin(slot) + length)
        return self.keys[:, :, own].clone(), self.values[:, :, own].clone()

    def restore(self, slot: int, keys: Tensor, values: Tensor, start: int, end: int) -> None:
        """Write the rows ``start`` to ``end`` (exclusive) of copied keys and values to the same rows of a slot."""
        own = slice(self.begin(slot) + start, self.begin(slot) + end)
        self.keys[:, :, own] = keys[:, :, start:end]
        self.values[:, :, own] = values[:, :, start:end]

    def clear(self, slot: int) -> None:
        """Zero a slot whose rows may be NaN, because a masked NaN still spreads through a product."""
        extent = self.extents.held.get(slot, range(0))
        self.keys[:, :, extent.start : extent.stop] = 0
        self.values[:, :, extent.start : extent.stop] = 0


@dataclass(frozen=True, slots=True)
class SlotView:
    """Requests of a batch whose slots are equally spaced, so that their past is read as a strided view."""

    part: slice
    """The requests, as a slice of the batch."""
    begin: int
    """First position of the first slot."""
    stride: int
    """Positions between two slots."""
    end: int
    """Number of positions that are read per slot."""
    mask: Tensor | None
    """Attention mask, or None if all rows attend to all positions."""
    together: bool
    """Whether all requests have the same start, so that new rows are written through the view as well."""

    @classmethod
    def of(
        cls, begins: Sequence[int], starts: Sequence[int], count: int, device: torch.device, first: int = 0
    ) -> SlotView:
        end, part = max(starts) + count, slice(first, first + len(begins))
        alike = min(starts) == max(starts)
        mask = None if alike and count == 1 else _causal(starts, count, device)
        return cls(part, begins[0], begins[1] - begins[0] if len(begins) > 1 else 0, end, mask, alike)

    def past(self, cache: Tensor) -> Tensor:
        """Return a view of the requests' positions [requests, heads, end, dim] in one layer's cache."""
        heads, dim = cache.shape[0], cache.shape[2]
        (over, along, _), first = cache.stride(), cache.storage_offset() + self.begin * cache.stride(1)
        shape = self.part.stop - self.part.start, heads, self.end, dim
        return cache.as_strided(shape, (self.stride * along, over, along, 1), first)


def _causal(starts: Sequence[int], count: int, device: torch.device) -> Tensor:
    """Return a mask [batch, 1, rows, end]: rows after the starts attend to everything before them and to themselves."""
    at = to_device(starts, device)[:, None] + torch.arange(count, device=device)
    return (torch.arange(max(starts) + count, device=device) <= at[..., None])[:, None]


@dataclass(frozen=True, slots=True)
class CachePositions:
    """Cache positions of a forward pass with the same number of rows per slot, appended at each slot's start.

    Equally spaced slots are one strided view. Otherwise each slot is its own view on a CPU, and positions are gathered
    on other devices.
    """

    index: Tensor
    """Slots [batch]."""
    at: Tensor
    """Cache positions of the rows [batch, rows]."""
    views: tuple[SlotView, ...]
    seen: Tensor | None = None
    """Positions to gather [batch, end], if there are no views."""
    mask: Tensor | None = None
    """Attention mask for ``seen``."""

    @classmethod
    def of(cls, cache: KvSlots, slots: Sequence[int], starts: Sequence[int], count: int) -> CachePositions:
        device, begins = cache.device, [cache.begin(slot) for slot in slots]
        own = to_device([sum(one) for one in zip(begins, starts, strict=True)], device)
        index, at = to_device(slots, device), own[:, None] + torch.arange(count, device=device)
        alike, apart = min(starts) == max(starts), {b - a for a, b in pairwise(begins)}
        # Slots of a shared cache end anywhere. A row must not read beyond its own slot, where another slot may contain
        # NaN.
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
        """Append keys and values [batch, heads, rows, dim] to one layer's cache [heads, positions, dim], and attend."""
        if len(self.views) == 1 and self.views[0].together:
            past = self.views[0].past(keys), self.views[0].past(values)
            past[0][:, :, -key.shape[2] :], past[1][:, :, -key.shape[2] :] = key, value
            return _attend(query, *past, self.views[0].mask)
        keys[:, self.at], values[:, self.at] = key.transpose(0, 1), value.transpose(0, 1)
        return self.look(query, keys, values)

    def look(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend after keys and values have been written."""
        if self.seen is not None:
            return attended(query, gathered(keys, self.seen), gathered(values, self.seen), self.mask)
        mixed = [_attend(query[view.part], view.past(keys), view.past(values), view.mask) for view in self.views]
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def in_place(device: torch.device) -> bool:
    """Return whether attention per request is cheaper than one call on gathered positions (not if launches are the
    cost).
    """
    return device.type == "cpu"


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    if not in_place(query.device):
        return attended(query, keys, values, mask)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)


@dataclass(frozen=True)
class VarlenBatch:
    """Cache positions of concatenated pieces of different lengths, in a batch of one.

    Attention is computed per piece, all else as one product. A slot may occur several times in order; its later rows
    attend to the earlier ones.
    """

    cache: KvSlots
    slots: Sequence[int]
    starts: Sequence[int]
    counts: Sequence[int]

    @cached_property
    def parts(self) -> list[CachePositions]:
        """The groups of pieces that one attention call computes.

        On a GPU, adjacent pieces of equal length form a group, because launches are the main cost. On a CPU, each piece
        is its own group.
        """
        numbers, apart = range(len(self.slots)), in_place(self.cache.device)
        alike = [list(part) for _, part in groupby(numbers, lambda i: (self.counts[i], apart and i))]
        return [
            CachePositions.of(
                self.cache, [self.slots[i] for i in part], [self.starts[i] for i in part], self.counts[part[0]]
            )
            for part in alike
        ]

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See ``CachePositions.mix``."""
        sizes = [part.at.numel() for part in self.parts]
        pieces = zip(self.parts, *(heads.split(sizes, 2) for heads in (query, key, value)), strict=True)
        return torch.cat([_apart(part, heads, keys, values) for part, *heads in pieces], 2)


@dataclass(frozen=True, slots=True)
class PiecesInPlace:
    """Cache positions of pieces that one kernel attends; ``at`` [1, rows] are the rows' cache positions."""

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
        """See ``CachePositions.look``."""
        return self.kernels.varlen(query, keys, values, self.blocks)


def pieces_in_place(
    cache: KvSlots,
    slots: Sequence[int],
    starts: Sequence[int],
    counts: Sequence[int],
    kernels: Kernels,
    idle: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cache positions of rows [rows], and the kernel's blocks.

    ``idle`` padding rows are added; they attend to nothing and write to the last slot.
    """
    begins = [cache.begin(slot) for slot in slots]
    own = [np.arange(n) + begin + start for begin, start, n in zip(begins, starts, counts, strict=True)]
    at = np.concatenate((*own, np.full(idle, cache.begin(len(cache.begins) - 1))))
    return at, kernels.cut([*begins, 0], [*starts, -idle], [*counts, idle])


def _apart(part: CachePositions, heads: Sequence[Tensor], keys: Tensor, values: Tensor) -> Tensor:
    """Attend with concatenated pieces [1, heads, pieces · rows, dim] (queries, keys, values)."""
    query, key, value = (one[0].unflatten(1, part.at.shape).transpose(0, 1) for one in heads)
    mixed = part.mix(query, key, value, keys, values)
    return mixed.transpose(0, 1).flatten(1, 2)[None]


@dataclass(frozen=True, slots=True)
class DecodeSlots:
    """Cache positions of a decode step with one row per slot; the positions are known only on the device."""

    index: Tensor
    """Slots [batch]."""
    at: Tensor
    """Cache positions of the rows [batch]."""
    seen: Tensor
    """The first ``length`` positions of each slot [batch, length]; those after the row repeat its own position."""
    mask: Tensor
    """Additive mask [batch, 1, 1, length] of these repeated positions."""

    @classmethod
    def of(cls, cache: KvSlots, slots: Tensor, starts: Tensor, length: int) -> DecodeSlots:
        columns, begins = torch.arange(length, device=starts.device), cache.begins[slots]
        beyond = columns > starts[:, None]
        mask = torch.zeros(beyond.shape, device=starts.device, dtype=cache.keys.dtype).masked_fill(beyond, -torch.inf)
        seen = begins[:, None] + torch.minimum(columns, starts[:, None])
        return cls(slots, begins + starts, seen, mask[:, None, None])

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See ``CachePositions.mix``."""
        keys[:, self.at], values[:, self.at] = key[:, :, 0].transpose(0, 1), value[:, :, 0].transpose(0, 1)
        return attended(query, gathered(keys, self.seen), gathered(values, self.seen), self.mask)


@dataclass(frozen=True, slots=True)
class SlotsInPlace:
    """Cache positions of a decode step whose attention is a kernel that reads slots in place."""

    index: Tensor
    """Slots [batch]."""
    at: Tensor
    """Cache positions of the rows [batch], the last that each attends to."""
    begins: Tensor
    """First cache positions [batch]."""
    lengths: Tensor
    """Number of positions that each row attends to [batch]."""
    longest: int
    """Maximum positions of a slot."""
    kernels: Kernels

    @classmethod
    def of(cls, cache: KvSlots, slots: Tensor, starts: Tensor, kernels: Kernels) -> SlotsInPlace:
        begins = cache.begins[slots]
        return cls(slots, begins + starts, begins, starts + 1, cache.length, kernels)

    def look(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See ``CachePositions.look``."""
        return self.kernels.attend(query, keys, values, self.begins, self.lengths, self.longest)


def gathered(cache: Tensor, positions: Tensor) -> Tensor:
    """Return positions [batch, n] of one layer's cache as [batch, heads, n, dim]."""
    return cache[:, positions].transpose(0, 1)


def attended(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention with queries [batch, heads, rows, dim] and ``mask`` [batch, 1, rows, length].

    Queries that share a key head become its rows: torch's kernels with a mask do not support shared heads, and would
    copy the keys.
    """
    batch, heads, count, dim = query.shape
    group = heads // keys.shape[1]
    folded = query.reshape(batch, heads // group, group * count, dim)
    if mask is not None and count > 1:
        mask = mask.repeat(1, 1, group, 1)
    return F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask).reshape(query.shape)


OneRow = DecodeSlots | SlotsInPlace


class Where(Protocol):
    """Cache positions of the rows of a forward pass."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See ``CachePositions.mix``."""
        ...


InPlace = CachePositions | PiecesInPlace | SlotsInPlace
"""Cache positions that kernels can write."""


@dataclass(slots=True)
class Batch:
    """Pieces of several requests that pass through a stack together, each appended to its slot."""

    slots: list[int] = field(default_factory=list[int])
    starts: list[int] = field(default_factory=list[int])
    embeddings: list[Tensor] = field(default_factory=list[Tensor])
    positions: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])

    def add(self, slot: int, start: int, embeddings: Tensor, positions: NDArray[np.float32]) -> None:
        """Add rows [count, width] after the first ``start`` of a slot, at rope positions [axes, count]."""
        self.slots.append(slot)
        self.starts.append(start)
        self.embeddings.append(embeddings)
        self.positions.append(positions)

    def parts(self, positions: int, pieces: int) -> list[Batch]:
        """Split into batches of at most ``positions`` rows and ``pieces`` pieces, in order. No piece may be longer."""
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
        """Indices of each piece's last row."""
        return [int(end) - 1 for end in np.cumsum(self.counts)]
