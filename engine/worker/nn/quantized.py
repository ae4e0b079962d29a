"""Quantized weights: integers or small floats with one scale per group. Independent of file formats.

Products are simple: a weight is dequantized to the stage's dtype, multiplied, and freed. Only the chosen experts are
dequantized. 4-bit dense layers on a CPU are not dequantized for few rows.
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
"""Numbers dequantized at once, because the intermediate values take several times the memory of the weight."""
PART_BYTES = 14
"""Maximum bytes of intermediate values per number: scales in float32, zero points, and a group table."""
MOST_PACKED = 32
"""Maximum rows for which torch's packed product is faster, with AVX2 or AVX512."""
PACKED_GROUPS = (32, 64, 128, 256)
"""Group sizes that the packed product supports."""


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A matrix [out, in], or several [..., out, in], with values (number - zero point) · scale."""

    numbers: Tensor
    """[..., out, in · bits / 8]. int8 and floats are the numbers themselves; uint8 holds unsigned integers.

    4-bit integers are stored in pairs, low half first.
    """
    scales: Tensor
    """[..., out, groups]. A group is a run of consecutive inputs, unless ``groups`` is set."""
    zeros: Tensor | None
    """Zero points, with the shape of ``scales``. None: the middle of the range for unsigned numbers, otherwise 0."""
    groups: Tensor | None
    """Group of each input [in], or None for consecutive groups."""
    bits: int
    dtype: torch.dtype
    """dtype after dequantization."""

    def __getitem__(self, index: int | slice | Tensor) -> QuantizedWeight:
        """Return one or some of several matrices."""
        return self._each(lambda part: part[index])

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    @property
    def nbytes(self) -> int:
        """Size of the stored tensors in bytes."""
        parts = (self.numbers, self.scales, self.zeros, self.groups)
        return sum(part.nbytes for part in parts if part is not None)

    @property
    def written_bytes(self) -> int:
        """Maximum bytes needed to dequantize the weight: the result and the intermediate values."""
        numbers = self.numbers.numel() * 8 // self.bits
        return numbers * self.dtype.itemsize + min(numbers, PART) * PART_BYTES

    def dense(self) -> Tensor:
        """Return the dequantized matrices [..., out, in], rounded once to the stage's dtype. Large ones are made in
        parts.
        """
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
        """Return a copy with ``change`` applied to the tensors that each matrix has."""
        zeros = change(self.zeros) if self.zeros is not None else None
        return QuantizedWeight(change(self.numbers), change(self.scales), zeros, self.groups, self.bits, self.dtype)


@dataclass(frozen=True, slots=True)
class PackedWeight(QuantizedWeight):
    """A 4-bit matrix that torch's CPU kernel can multiply directly, so that few rows need no dequantization.

    It stores its numbers twice, because the kernel's layout (``packed``) depends on the CPU type.
    """

    packed: Tensor
    pairs: Tensor
    """Scales and offsets from ``pairs``."""

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.numbers, self.scales, self.packed, self.pairs))

    def product(self, x: Tensor) -> Tensor:
        """Multiply rows: [..., in] → [..., out]; sums are float32."""
        ops: Any = torch.ops.aten
        flat, group = x.reshape(-1, x.shape[-1]).contiguous(), x.shape[-1] // len(self.pairs)
        return ops._weight_int4pack_mm_for_cpu(flat, self.packed, group, self.pairs).view(*x.shape[:-1], -1)


def packed(weight: QuantizedWeight) -> QuantizedWeight:
    """Return the weight as a PackedWeight if torch has a fast product for it; otherwise unchanged."""
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
    """Return scales and offsets [groups, out, 2] for torch's packed product. Offsets are 0 at the numbers' middle."""
    scales = weight.scales.to(weight.dtype)
    return torch.stack((scales, torch.zeros_like(scales)), -1).transpose(0, 1).contiguous()


def _has_packed_product() -> bool:
    """Return whether the packed product is vectorized on this machine; otherwise it is slower than dequantization."""
    return sys.platform != "win32" and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


Weight = Tensor | QuantizedWeight
"""A weight [out, in] of a linear layer, or the weights of several experts."""


def dense(weight: Weight) -> Tensor:
    """Return a weight dequantized, or unchanged if it is not quantized."""
    return weight if isinstance(weight, Tensor) else weight.dense()


def linear(x: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """Multiply rows: [..., in] → [..., out]."""
    if isinstance(weight, PackedWeight) and x.numel() <= MOST_PACKED * x.shape[-1]:
        return weight.product(x) if bias is None else weight.product(x) + bias
    return F.linear(x, dense(weight), bias)


def joined(parts: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """Concatenate matrices with the same input. Raises ValueError if they are quantized differently."""
    return _together(parts, torch.cat)


def stacked(parts: Iterable[Weight], count: int) -> Weight:
    """Stack weights of one shape to [count, out, in], copying unquantized ones as they arrive.

    Raises ValueError if they are quantized differently.
    """
    coming = iter(parts)
    first = next(coming)
    if isinstance(first, QuantizedWeight):
        packed = [first, *(part for part in coming if isinstance(part, QuantizedWeight))]
        if len(packed) < count:
            raise ValueError("only some of these layers are quantized, which is not supported")
        return _together(packed, torch.stack)
    whole = first.new_empty(count, *first.shape)
    for n, part in enumerate(chain([first], coming)):
        if isinstance(part, QuantizedWeight):
            raise ValueError("only some of these layers are quantized, which is not supported")
        whole[n] = part
    return whole


def _together(parts: Sequence[QuantizedWeight], join: Callable[[list[Tensor]], Tensor]) -> QuantizedWeight:
    if len({_kind(part) for part in parts}) > 1:
        raise ValueError("these layers are quantized in different ways, which is not supported")
    if not all(_alike(part.groups, parts[0].groups) for part in parts):
        raise ValueError(
            "they have different input orders (GPTQ's desc_act), which is not supported for layers that are "
            "computed together. Use a checkpoint made without desc_act, or make one with `parley quantize`"
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
    """Unpack two 4-bit numbers from each byte, low half first."""
    return torch.stack((numbers & 15, numbers >> 4), -1).flatten(-2)


def in_halves(numbers: Tensor) -> Tensor:
    """Pack 4-bit numbers, uint8 [..., even], two per byte; the inverse of ``halves``."""
    low, high = numbers.unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)
