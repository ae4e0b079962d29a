"""Draw ids from logits on the device, for a batch of requests that do not influence each other.

Randomness is counter-based: one number for each (seed, stage, step, codebook), whatever else is in the batch, wherever
the request runs or is resumed. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FAILED = -1
"""What is drawn from logits that are not numbers."""

_MIX = (-4658895280553007687, -7723592293110705685)  # SplitMix64's multipliers (Steele et al. 2014), as signed 64 bits
_GOLDEN = -7046029254386353131


@dataclass(frozen=True, slots=True)
class Draw:
    """How one request draws. ``top_k`` 0 keeps all; greedy wins over the rest."""

    seed: int
    greedy: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def uniforms(seeds: Tensor, stage: int, steps: Tensor, codebook: int) -> Tensor:
    """float32 in [0, 1) for int64 seeds and steps [batch]."""
    state = _mixed(seeds + _signed(_GOLDEN * (stage + 1)))
    state = _mixed(state + (steps + 1) * _GOLDEN)
    state = _mixed(state + _signed(_GOLDEN * (codebook + 1)))
    return ((state >> 40) & 0xFFFFFF).float() / (1 << 24)


def _mixed(x: Tensor) -> Tensor:
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        x = (x ^ _unsigned_shift(x, shift)) * factor
    return x ^ _unsigned_shift(x, 31)


def _unsigned_shift(x: Tensor, by: int) -> Tensor:
    return (x >> by) & ((1 << (64 - by)) - 1)


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits [batch, ids] with those of ids ``seen`` (bool, alike) made less likely (Keskar et al. 2019)."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def draw(logits: Tensor, draws: Sequence[Draw], stage: int, steps: Tensor, codebook: int = 0) -> Tensor:
    """One id for each row of ``logits`` [batch, ids]; FAILED where a row holds NaN.

    Top-k and top-p keep what is most likely, the least likely of them at the end of the number line that ``uniforms``
    points into: so a small change of the logits seldom changes the draw.
    """
    logits = logits.float()
    best = logits.argmax(-1)
    if not all(one.greedy for one in draws):
        best = torch.where(
            _column([one.greedy for one in draws], best)[:, 0], best, _drawn(logits, draws, stage, steps, codebook)
        )
    return torch.where(logits.isnan().any(-1), FAILED, best)


def _drawn(logits: Tensor, draws: Sequence[Draw], stage: int, steps: Tensor, codebook: int) -> Tensor:
    most = logits.shape[-1] if any(one.top_k == 0 for one in draws) else max(one.top_k for one in draws)
    top, ids = torch.topk(logits, min(most, logits.shape[-1]), -1)
    top = top / _column([one.temperature or 1.0 for one in draws], top)
    ranks = torch.arange(top.shape[-1], device=top.device)
    top = top.masked_fill(ranks >= _column([one.top_k or top.shape[-1] for one in draws], ranks), -torch.inf)
    ends = top.softmax(-1).cumsum(-1)
    starts = torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), -1)
    kept = torch.where(starts < _column([one.top_p for one in draws], ends), ends, 0).amax(-1, keepdim=True)
    seeds = _column([_signed(one.seed) for one in draws], ids)[:, 0]
    points = uniforms(seeds, stage, steps, codebook)[:, None] * kept
    place = (ends <= points).sum(-1, keepdim=True).clamp(max=top.shape[-1] - 1)
    return ids.gather(-1, place)[:, 0]


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, device=like.device)[:, None]


def _signed(seed: int) -> int:
    return (seed & (2**64 - 1)) - ((seed & (1 << 63)) << 1)
