"""The inputs that requests bring to a decode step, a row each, as columns of one table: one copy brings all to a
device.

Knows no model and no stage.
"""

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
    """A token that goes in behind the first ``start`` rows of a slot, at a rope ``position``; draw ``step`` is next."""

    slot: int
    start: int
    token: int
    step: int
    position: float
    params: SamplingParams


def packed(inputs: Sequence[DecodeInput]) -> NDArray[np.int64]:
    """A table [10, batch] for ``DecodeBatch``."""
    own = np.array([(one.slot, one.start, one.token, one.step) for one in inputs], np.int64)
    positions = float_bits([one.position for one in inputs])
    return np.concatenate((own.T, positions[None], sampling_params.packed([one.params for one in inputs])))


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Inputs of a decode step on a device, each field [batch]. ``max_top_k``: see BatchSamplingParams."""

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
