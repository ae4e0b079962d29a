"""Slots of a preallocated KV cache, and which rows of a forward go to which of them. Knows no layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn.device import to_device


class KvSlots:
    """Keys and values of every layer: [layers, slots, heads, length, dim] each. A slot belongs to one request."""

    def __init__(
        self, layers: int, slots: int, heads: int, length: int, dim: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.length = length
        self.keys = torch.zeros(layers, slots, heads, length, dim, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def copy(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """The first ``length`` keys and values of a slot [layers, heads, length, dim], as they are now."""
        return self.keys[:, slot, :, :length].clone(), self.values[:, slot, :, :length].clone()

    def restore(self, slot: int, keys: Tensor, values: Tensor, start: int, end: int) -> None:
        """Put rows that were copied, from ``start`` to ``end``, into a slot."""
        self.keys[:, slot, :, start:end] = keys[:, :, start:end]
        self.values[:, slot, :, start:end] = values[:, :, start:end]

    def clear(self, slot: int) -> None:
        """Forget a slot whose rows may be NaN: a masked NaN still poisons what it is multiplied with."""
        self.keys[:, slot] = 0
        self.values[:, slot] = 0


@dataclass(frozen=True, slots=True)
class CachePositions:
    """Cache positions for the rows of one forward: the same number of rows for each slot, appended at its start.

    ``index`` are slots [batch], ``at`` cache positions [batch, rows]; ``mask`` says who sees whom, or is None where
    everyone sees everything. Slots that lie side by side (``beside``) are read in place; where they also start alike
    (``together``, else None) they are written in place.
    """

    index: Tensor
    at: Tensor
    mask: Tensor | None
    end: int
    beside: slice | None
    together: slice | None

    @classmethod
    def of(cls, slots: Sequence[int], starts: Sequence[int], count: int, device: torch.device) -> CachePositions:
        at = to_device(starts, device)[:, None] + torch.arange(count, device=device)
        alike, end = min(starts) == max(starts), max(starts) + count
        mask = None if alike and count == 1 else (torch.arange(end, device=device) <= at[..., None])[:, None]
        rising = all(b - a == 1 for a, b in pairwise(slots))
        beside = slice(slots[0], slots[-1] + 1) if rising else None
        together = slice(starts[0], end) if rising and alike else None
        return cls(to_device(slots, device), at, mask, end, beside, together)

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Append keys and values [batch, heads, rows, dim] to one layer's cache; what queries make of what they see."""
        self.append(keys, key)
        self.append(values, value)
        seen = self.past(keys), self.past(values)
        if query.device.type != "cpu":
            return attended(query, *seen, self.mask)
        return F.scaled_dot_product_attention(query, *seen, attn_mask=self.mask, enable_gqa=True)

    def past(self, cache: Tensor) -> Tensor:
        """Return what these rows may look at, of one layer's cache [slots, heads, length, dim]."""
        filled = cache[:, :, : self.end]
        return filled[self.index] if self.beside is None else filled[self.beside]

    def append(self, cache: Tensor, new: Tensor) -> None:
        """Write the rows' own keys or values [batch, heads, rows, dim] into one layer's cache."""
        if self.beside is not None and self.together is not None:
            cache[self.beside, :, self.together] = new
        else:
            cache[self.index[:, None], :, self.at] = new.transpose(1, 2)


@dataclass(frozen=True)
class VarlenBatch:
    """Cache positions for rows of which each slot has its own number: one slot's behind another's, in a batch of one.

    Each slot's attention is its own; all else is one product. A slot may come twice, in order: its later rows see the
    earlier ones.
    """

    slots: Sequence[int]
    starts: Sequence[int]
    counts: Sequence[int]
    device: torch.device

    @cached_property
    def at(self) -> Tensor:
        """The cache position of every row [1, rows]."""
        spans = [np.arange(start, start + n) for start, n in zip(self.starts, self.counts, strict=True)]
        return to_device(np.concatenate(spans)[None], self.device)

    @cached_property
    def _parts(self) -> list[CachePositions]:
        """Pieces side by side that have as many rows as each other are one attention on a GPU, to which a launch is
        what costs; on a CPU each is its own."""
        numbers, apart = range(len(self.slots)), self.device.type == "cpu"
        alike = [list(part) for _, part in groupby(numbers, lambda i: (self.counts[i], apart and i))]
        return [
            CachePositions.of(
                [self.slots[i] for i in part], [self.starts[i] for i in part], self.counts[part[0]], self.device
            )
            for part in alike
        ]

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.mix."""
        sizes = [part.at.numel() for part in self._parts]
        pieces = zip(self._parts, *(heads.split(sizes, 2) for heads in (query, key, value)), strict=True)
        return torch.cat([_apart(part, heads, keys, values) for part, *heads in pieces], 2)


def _apart(part: CachePositions, heads: Sequence[Tensor], keys: Tensor, values: Tensor) -> Tensor:
    """Attend with pieces [1, heads, pieces · rows, dim] (queries, keys, values) to what they may see."""
    query, key, value = (one[0].unflatten(1, part.at.shape).transpose(0, 1) for one in heads)
    mixed = part.mix(query, key, value, keys, values)
    return mixed.transpose(0, 1).flatten(1, 2)[None]


@dataclass(frozen=True, slots=True)
class DecodeSlots:
    """Cache positions for one row a slot, at a position that the device alone knows: shapes are the host's.

    ``index`` are slots and ``starts`` cache positions [batch]; ``mask`` [batch, 1, 1, length] is added to what rows
    make of the first ``length`` positions of their slots, and bars those behind their own.
    """

    index: Tensor
    starts: Tensor
    length: int
    mask: Tensor

    @classmethod
    def of(cls, slots: Tensor, starts: Tensor, length: int, dtype: torch.dtype) -> DecodeSlots:
        beyond = torch.arange(length, device=starts.device) > starts[:, None]
        mask = torch.zeros(beyond.shape, device=starts.device, dtype=dtype).masked_fill(beyond, -torch.inf)
        return cls(slots, starts, length, mask[:, None, None])

    @property
    def at(self) -> Tensor:
        """The cache position of every row [batch, 1]."""
        return self.starts[:, None]

    def mix(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See CachePositions.mix."""
        keys[self.index, :, self.starts] = key[:, :, 0]
        values[self.index, :, self.starts] = value[:, :, 0]
        seen = [cache[:, :, : self.length][self.index] for cache in (keys, values)]
        return attended(query, seen[0], seen[1], self.mask)


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


Where = CachePositions | VarlenBatch | DecodeSlots
"""The slots and cache positions to which the rows of a forward go."""


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

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def counts(self) -> list[int]:
        return [len(embeddings) for embeddings in self.embeddings]

    @property
    def lasts(self) -> list[int]:
        """Return where each slot's last row is among all."""
        return [int(end) - 1 for end in np.cumsum(self.counts)]
