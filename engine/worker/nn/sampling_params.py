"""How ids are drawn for each request of a batch, and the random numbers that they are drawn with.

Randomness is counter-based (``engine/worker/randomness.py``): one number for each (seed, stage, step, codebook), the
same on every device. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.nn.device import float_bits, from_bits, to_device
from engine.worker.randomness import BITS, GOLDEN, MIX

FAILED = -1
"""The id that is drawn from logits that are not numbers."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The way in which ids are drawn for one request. ``top_k`` 0 keeps all; greedy wins over the rest."""

    seed: int
    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchSamplingParams:
    """The way in which ids are drawn for each request of a batch: columns on the device, made once for all the draws of
    a step."""

    seeds: Tensor
    greedy: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    all_greedy: bool
    max_top_k: int
    """The largest ``top_k``; 0 where one keeps all."""
    ahead: Tensor | None = None
    """The numbers of one stage's step [batch, codebooks], where they were made together."""

    @classmethod
    def of(cls, each: Sequence[SamplingParams], device: torch.device) -> BatchSamplingParams:
        """``each`` in the order of the batch."""
        keep_all = any(one.top_k == 0 for one in each)
        return cls(
            seeds=to_device([signed(one.seed) for one in each], device),
            greedy=to_device([one.greedy for one in each], device),
            temperature=to_device([[one.temperature or 1.0] for one in each], device),
            top_k=to_device([[one.top_k or 2**31] for one in each], device),
            top_p=to_device([[one.top_p] for one in each], device),
            all_greedy=all(one.greedy for one in each),
            max_top_k=0 if keep_all else max(one.top_k for one in each),
        )

    @classmethod
    def unpacked(cls, table: Tensor, max_top_k: int) -> BatchSamplingParams:
        """Unpack what ``packed`` made, on the device, where nobody asks whether all are greedy."""
        heat, top_p = from_bits(table[3:])[..., None]
        return cls(table[0], table[1] != 0, heat, table[2][:, None], top_p, False, max_top_k)

    def fixed(self, temperature: float, top_k: int, top_p: float) -> BatchSamplingParams:
        """The same seeds and the same greed, with settings that are no request's to choose."""
        column = torch.ones_like(self.temperature)
        return replace(
            self,
            temperature=column * temperature,
            top_k=torch.full_like(self.top_k, top_k),
            top_p=column * top_p,
            max_top_k=top_k,
        )

    def together(self, stage: int, steps: Tensor, codebooks: int) -> BatchSamplingParams:
        """The same for one step of a stage, and the numbers of all its codebooks: each takes forty kernels."""
        if self.all_greedy:
            return self
        books = torch.arange(codebooks, device=steps.device)
        return replace(self, ahead=uniforms(self.seeds[:, None], stage, steps[:, None], books))

    def points(self, stage: int, steps: Tensor, codebook: int) -> Tensor:
        """Return where on the number line each request draws [batch]."""
        return uniforms(self.seeds, stage, steps, codebook) if self.ahead is None else self.ahead[:, codebook]


def packed(each: Sequence[SamplingParams]) -> NDArray[np.int64]:
    """Columns of one table [5, batch], so that one copy brings them to a device; its last rows are bits of float32."""
    table = np.empty((5, len(each)), np.int64)
    table[:3] = np.array([(signed(one.seed), one.greedy, one.top_k or 2**31) for one in each], np.int64).T
    table[3:] = float_bits([(one.temperature or 1.0, one.top_p) for one in each]).T
    return table


def uniforms(seeds: Tensor, stage: int, steps: Tensor, codebook: int | Tensor) -> Tensor:
    """float32 in [0, 1) for int64 seeds and steps [batch]; of several codebooks if they broadcast."""
    state = _mixed(seeds + signed(GOLDEN * (stage + 1)))
    state = _mixed(state + (steps + 1) * signed(GOLDEN))
    own = (codebook + 1) * signed(GOLDEN) if isinstance(codebook, Tensor) else signed((codebook + 1) * GOLDEN)
    state = _mixed(state + own)
    return _unsigned_shift(state, 64 - BITS).float() / (1 << BITS)


def _mixed(x: Tensor) -> Tensor:
    for shift, factor in zip((30, 27), MIX, strict=True):
        x = (x ^ _unsigned_shift(x, shift)) * signed(factor)
    return x ^ _unsigned_shift(x, 31)


def _unsigned_shift(x: Tensor, by: int) -> Tensor:
    return (x >> by) & ((1 << (64 - by)) - 1)


def signed(seed: int) -> int:
    """The same 64 bits as a number with a sign."""
    return (seed & (2**64 - 1)) - ((seed & (1 << 63)) << 1)
