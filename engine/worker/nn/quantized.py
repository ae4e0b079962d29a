"""Weights in few bits: whole numbers or small floats, and a scale for each group of them. Knows no file format.

The products here are plain: a weight is written out in the stage's dtype, multiplied with, and forgotten. Of experts
only those are written out that are asked for; of dense layers of four bits, none for few rows on a processor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PART = 1 << 24
"""Numbers that are written out at once: what lies between their bits and the weight takes several times as much."""
PART_BYTES = 14
"""Bytes that each of them takes meanwhile, at most: with scales in float32, zeros, and a table of groups."""
MOST_PACKED = 32
"""Rows up to which torch's packed product is the quicker one, with AVX2 as with AVX512."""
PACKED_GROUPS = (32, 64, 128, 256)
"""Inputs that may share a scale in it."""


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A matrix [out, in], or several [..., out, in], as (number − zero) · scale.

    ``numbers`` [..., out, in · bits / 8]: uint8 are unsigned, of 4 bits two to a byte, the low half first; int8 and
    floats are themselves. ``scales`` [..., out, groups]; ``zeros`` the same shape, where none are given the middle of
    unsigned numbers is zero. Each group is so many inputs side by side, unless ``groups`` [in] tells the group of each.
    """

    numbers: Tensor
    scales: Tensor
    zeros: Tensor | None
    groups: Tensor | None
    bits: int
    dtype: torch.dtype
    """The dtype in which it is written out."""

    def __getitem__(self, index: int | slice | Tensor) -> QuantizedWeight:
        """One of several matrices, or some of them."""
        return self._each(lambda part: part[index])

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, of which ``dense`` takes none for good."""
        parts = (self.numbers, self.scales, self.zeros, self.groups)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def written_bytes(self) -> int:
        """Bytes that it takes to write it out, at most: the whole, and what a part takes meanwhile."""
        numbers = self.numbers.numel() * 8 // self.bits
        return numbers * self.dtype.itemsize + min(numbers, PART) * PART_BYTES

    def dense(self) -> Tensor:
        """The matrices [..., out, in], rounded once from the scales' dtype to the stage's. Of large ones, a part is
        written after the other."""
        lines, width = self.numbers.shape[:-1], self.numbers.shape[-1] * 8 // self.bits
        if lines.numel() * width <= PART:
            return self._dense()
        whole = torch.empty(*lines, width, device=self.device, dtype=self.dtype)
        flat, many = self._each(lambda part: part.flatten(0, -2)), max(1, PART // width)
        for n, into in enumerate(whole.flatten(0, -2).split(many)):
            into.copy_(flat[n * many : (n + 1) * many]._dense())
        return whole

    def _dense(self) -> Tensor:
        scales, zeros = self.scales, self.zeros
        numbers = halves(self.numbers) if self.bits == 4 else self.numbers
        numbers = numbers.to(scales.dtype)
        if self.groups is not None:
            scales = scales.index_select(-1, self.groups)
            zeros = zeros.index_select(-1, self.groups) if zeros is not None else None
        else:
            numbers = numbers.unflatten(-1, (scales.shape[-1], -1))
            scales, zeros = scales[..., None], zeros[..., None] if zeros is not None else None
        if zeros is not None:
            numbers -= zeros.to(scales.dtype)
        elif self.numbers.dtype == torch.uint8:
            numbers -= 1 << (self.bits - 1)
        numbers *= scales
        return (numbers if self.groups is not None else numbers.flatten(-2)).to(self.dtype)

    def _each(self, change: Callable[[Tensor], Tensor]) -> QuantizedWeight:
        """The same with the parts that every matrix has of its own changed."""
        zeros = change(self.zeros) if self.zeros is not None else None
        return QuantizedWeight(change(self.numbers), change(self.scales), zeros, self.groups, self.bits, self.dtype)


@dataclass(frozen=True, slots=True)
class PackedWeight(QuantizedWeight):
    """A matrix of four bits that torch's own product for processors reads as well: for few rows nothing is written out.

    It holds its numbers twice, since ``packed`` has them in that product's own order, which is another on each kind of
    processor.
    """

    packed: Tensor
    pairs: Tensor
    """As ``pairs`` makes them."""

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.numbers, self.scales, self.packed, self.pairs))

    def product(self, x: Tensor) -> Tensor:
        """Rows [..., in] → [..., out]; sums are float32."""
        ops: Any = torch.ops.aten
        flat, group = x.reshape(-1, x.shape[-1]).contiguous(), x.shape[-1] // len(self.pairs)
        return ops._weight_int4pack_mm_for_cpu(flat, self.packed, group, self.pairs).view(*x.shape[:-1], -1)


def packed(weight: QuantizedWeight) -> QuantizedWeight:
    """A weight as a PackedWeight, where torch has a product for it that is quick; else itself."""
    *several, outputs, groups = weight.scales.shape
    group = 2 * weight.numbers.shape[-1] // groups
    exact = weight.zeros is None and weight.dtype == weight.scales.dtype == torch.bfloat16
    fits = weight.bits == 4 and not several and weight.groups is None and outputs % 16 == 0 and group in PACKED_GROUPS
    if not (exact and fits and weight.device.type == "cpu" and _has_packed_product()):
        return weight
    ops: Any = torch.ops.aten
    numbers = ops._convert_weight_to_int4pack_for_cpu(halves(weight.numbers).to(torch.int32), 1)
    return PackedWeight(weight.numbers, weight.scales, None, None, 4, weight.dtype, numbers, pairs(weight))


def pairs(weight: QuantizedWeight) -> Tensor:
    """What torch's packed products take for scales [groups, out, 2]: each, and what the middle of the numbers stands
    for, which is zero."""
    scales = weight.scales.to(weight.dtype)
    return torch.stack((scales, torch.zeros_like(scales)), -1).transpose(0, 1).contiguous()


def _has_packed_product() -> bool:
    """Whether it is vectorised here; elsewhere it is slower than a weight that is written out."""
    return sys.platform != "win32" and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


Weight = Tensor | QuantizedWeight
"""A weight of a linear layer [out, in], or those of several experts."""


def dense(weight: Weight) -> Tensor:
    """A weight written out; one that is so already is itself."""
    return weight if isinstance(weight, Tensor) else weight.dense()


def linear(x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """Rows [..., in] → [..., out]."""
    if isinstance(weight, PackedWeight) and x.numel() <= MOST_PACKED * x.shape[-1]:
        return weight.product(x) if bias is None else weight.product(x) + bias
    return F.linear(x, dense(weight), bias)


def joined(parts: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """Matrices that eat the same rows as one, below each other. Raises ValueError where they are of several kinds."""
    return _together(parts, torch.cat)


def stacked(parts: Iterable[Weight], count: int) -> Weight:
    """Put weights of one shape together [count, out, in]; what is written out is copied to its place as it comes.

    Raises ValueError where they are of several kinds.
    """
    coming = iter(parts)
    first = next(coming)
    if isinstance(first, QuantizedWeight):
        packed = [first, *(part for part in coming if isinstance(part, QuantizedWeight))]
        if len(packed) < count:
            raise ValueError("some of them are quantized, and others not")
        return _together(packed, torch.stack)
    whole = first.new_empty(count, *first.shape)
    for n, part in enumerate(chain([first], coming)):
        if isinstance(part, QuantizedWeight):
            raise ValueError("some of them are quantized, and others not")
        whole[n] = part
    return whole


def _together(parts: Sequence[QuantizedWeight], join: Callable[[list[Tensor]], Tensor]) -> QuantizedWeight:
    if len({_kind(part) for part in parts}) > 1:
        raise ValueError("they are quantized in several ways")
    if not all(_alike(part.groups, parts[0].groups) for part in parts):
        raise ValueError(
            "each has its inputs in an order of its own (GPTQ's desc_act), which is not read of layers that are "
            "computed as one. Take a checkpoint that was made without desc_act, or make one with `parley quantize`"
        )
    first = parts[0]
    zeros = join([part.zeros for part in parts if part.zeros is not None]) if first.zeros is not None else None
    return QuantizedWeight(
        join([part.numbers for part in parts]),
        join([part.scales for part in parts]),
        zeros,
        first.groups,
        first.bits,
        first.dtype,
    )


def _kind(part: QuantizedWeight) -> tuple[Any, ...]:
    return part.bits, part.numbers.dtype, part.scales.dtype, part.scales.shape[-1], part.zeros is None


def _alike(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one.is_meta:
        return (one is None) == (other is None)
    return torch.equal(one, other)


def halves(numbers: Tensor) -> Tensor:
    """Two numbers of four bits from each byte, the low half first."""
    return torch.stack((numbers & 15, numbers >> 4), -1).flatten(-2)


def in_halves(numbers: Tensor) -> Tensor:
    """Numbers of four bits, uint8 [..., even], two to a byte: what ``halves`` takes apart."""
    low, high = numbers.unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)
