"""Draw ids from logits on the device, for a batch of requests that do not influence each other.

Nothing here waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits [batch, ids] with those of ids ``seen`` (bool, alike) made less likely (Keskar et al. 2019)."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def draw(
    logits: Tensor,
    params: BatchSamplingParams,
    stage: int,
    steps: Tensor,
    codebook: int = 0,
    kernels: Kernels | None = None,
) -> Tensor:
    """One id for each row of ``logits`` [batch, ids]; FAILED where a row holds NaN."""
    if kernels is not None and logits.shape[1] <= kernels.most_ids:
        return kernels.draw(logits, params, stage, steps, codebook)
    logits = logits.float()
    best = logits.argmax(-1)
    if not params.all_greedy:
        best = torch.where(params.greedy, best, _drawn(logits, params, params.points(stage, steps, codebook)))
    return torch.where(logits.isnan().any(-1), FAILED, best)


def number_line(logits: Tensor, params: BatchSamplingParams) -> tuple[Tensor, Tensor]:
    """The ids that top-k and top-p keep, and where each one's share of the number line ends [batch, kept].

    They lie in the order of the ids. In that of their likelihood, two that are as likely as each other would change
    places with the last bit of a logit, which another batch rounds otherwise.
    """
    kept = logits.shape[-1]
    top, ids = torch.topk(logits, min(params.max_top_k or kept, kept), -1)
    ranks = torch.arange(top.shape[-1], device=top.device)
    shares = (top / params.temperature).masked_fill(ranks >= params.top_k, -torch.inf).softmax(-1)
    starts = torch.cat((torch.zeros_like(shares[:, :1]), shares.cumsum(-1)[:, :-1]), -1)
    shares = torch.where((starts < params.top_p) | (ranks == 0), shares, 0)
    ids, order = ids.sort(-1)
    return ids, shares.gather(-1, order).cumsum(-1)


def _drawn(logits: Tensor, params: BatchSamplingParams, points: Tensor) -> Tensor:
    ids, ends = number_line(logits, params)
    whole = ends[:, -1:]
    pick = ((ends <= points[:, None] * whole) & (ends < whole)).sum(-1, keepdim=True)
    return ids.gather(-1, pick)[:, 0]
