"""Inputs of a decode step, packed into one table so that a single copy moves them to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn import sampling_params
from engine.worker.nn.device import float_bits, from_bits
from engine.worker.nn.sampling_params import BatchSamplingParams, SamplingParams


@dataclass(frozen=True, slots=True)
class DecodeInput:
    """Input row of a decode step."""

    slot: int
    start: int
    """Number of rows in the slot before this one."""
    token: int
    step: int
    """Index of the next draw."""
    position: float
    """Rope position."""
    params: SamplingParams


def packed(inputs: Sequence[DecodeInput]) -> NDArray[np.int64]:
    """Return a table [10, batch] for ``DecodeBatch``."""
    own = np.array([(one.slot, one.start, one.token, one.step) for one in inputs], np.int64)
    positions = float_bits([one.position for one in inputs])
    return np.concatenate((own.T, positions[None], sampling_params.packed([one.params for one in inputs])))


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Inputs of a decode step on the device; each field is [batch]. For ``max_top_k`` see BatchSamplingParams."""

    slots: Tensor
    starts: Tensor
    tokens: Tensor
    steps: Tensor
    positions: Tensor
    params: BatchSamplingParams

    @classmethod
    def of(cls, table: Tensor, max_top_k: int) -> DecodeBatch:
        slots, starts, tokens, steps, positions = table[:5]
        return cls(
            slots, starts, tokens, steps, from_bits(positions), BatchSamplingParams.unpacked(table[5:], max_top_k)
        )
