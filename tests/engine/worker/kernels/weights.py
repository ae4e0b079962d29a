"""Random weights of few bits, in every layout that kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.worker.nn.quantized import QuantizedWeight, in_halves


@dataclass(frozen=True, slots=True)
class Kind:
    """How numbers lie: of how many bits, with a sign, with zeros of their own, with a table of groups."""

    bits: int
    signed: bool = False
    zeros: bool = False
    table: bool = False


KINDS = {
    "int4": Kind(4), "int4 with zeros": Kind(4, zeros=True),
    "int4 with zeros and a table": Kind(4, zeros=True, table=True),
    "uint8": Kind(8), "int8": Kind(8, signed=True), "int8 with zeros": Kind(8, signed=True, zeros=True),
}  # fmt: skip


def weight(
    count: int, outputs: int, width: int, group: int, kind: Kind, scales: torch.dtype, dtype: torch.dtype, seed: int = 0
) -> QuantizedWeight:
    """``count`` matrices [outputs, width], of which ``group`` inputs share a scale."""
    dice, shape = torch.Generator().manual_seed(seed), (count, outputs, width // group)
    numbers = torch.randint(0, 1 << kind.bits, (count, outputs, width), generator=dice)
    zeros = torch.randint(0, 1 << kind.bits, shape, generator=dice)
    packed = in_halves(numbers.to(torch.uint8)) if kind.bits == 4 else _whole(numbers, kind)
    return QuantizedWeight(
        packed, (torch.rand(shape, generator=dice) / 20 + 0.01).to(scales), _whole(zeros, kind) if kind.zeros else None,
        torch.randperm(width, generator=dice) // group if kind.table else None, kind.bits, dtype,
    )  # fmt: skip


def _whole(numbers: torch.Tensor, kind: Kind) -> torch.Tensor:
    return (numbers - 128).to(torch.int8) if kind.signed else numbers.to(torch.uint8)
