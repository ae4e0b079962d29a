"""Sampling parameters of a batch's requests, and their random numbers.

Randomness is counter-based (``engine/worker/randomness.py``): one number for each (seed, stage, step, codebook), equal
on every device. Nothing synchronizes with the device.
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
"""Id drawn from logits with NaN."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of one request. ``top_k`` 0 keeps all ids; ``greedy`` overrides the others."""

    seed: int
    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchSamplingParams:
    """Sampling parameters of a batch as tensors on the device, created once per step."""

    seeds: Tensor
    greedy: Tensor
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    all_greedy: bool
    max_top_k: int
    """Largest ``top_k``; 0 if any request keeps all ids."""
    ahead: Tensor | None = None
    """Precomputed random numbers of one stage's step [batch, codebooks], or None."""

    @classmethod
    def of(cls, each: Sequence[SamplingParams], device: torch.device) -> BatchSamplingParams:
        """Create from parameters in the order of the batch."""
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
        """Unpack the table of ``packed`` on the device. ``all_greedy`` is False, because checking would synchronize."""
        heat, top_p = from_bits(table[3:])[..., None]
        return cls(table[0], table[1] != 0, heat, table[2][:, None], top_p, False, max_top_k)

    def fixed(self, temperature: float, top_k: int, top_p: float) -> BatchSamplingParams:
        """Return a copy with the same seeds and greediness, but these settings."""
        column = torch.ones_like(self.temperature)
        return replace(
            self,
            temperature=column * temperature,
            top_k=torch.full_like(self.top_k, top_k),
            top_p=column * top_p,
            max_top_k=top_k,
        )

    def together(self, stage: int, steps: Tensor, codebooks: int) -> BatchSamplingParams:
        """Return a copy with the random numbers of all codebooks precomputed, which saves about 40 kernels per
        codebook.
        """
        if self.all_greedy:
            return self
        books = torch.arange(codebooks, device=steps.device)
        return replace(self, ahead=uniforms(self.seeds[:, None], stage, steps[:, None], books))

    def points(self, stage: int, steps: Tensor, codebook: int) -> Tensor:
        """Return each request's random number in [0, 1) [batch]."""
        return uniforms(self.seeds, stage, steps, codebook) if self.ahead is None else self.ahead[:, codebook]


def packed(each: Sequence[SamplingParams]) -> NDArray[np.int64]:
    """Return a table [5, batch] that a single copy moves to the device; its last rows are bits of float32."""
    table = np.empty((5, len(each)), np.int64)
    table[:3] = np.array([(signed(one.seed), one.greedy, one.top_k or 2**31) for one in each], np.int64).T
    table[3:] = float_bits([(one.temperature or 1.0, one.top_p) for one in each]).T
    return table


def uniforms(seeds: Tensor, stage: int, steps: Tensor, codebook: int | Tensor) -> Tensor:
    """Return float32 in [0, 1) for int64 seeds and steps [batch]; ``codebook`` may be a tensor that broadcasts."""
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
    """Return the same 64 bits as a signed number."""
    return (seed & (2**64 - 1)) - ((seed & (1 << 63)) << 1)
