"""Draws ids from logits on the device; the requests of a batch do not influence each other. Nothing synchronizes."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams


def penalised(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Apply a repetition penalty to logits [batch, ids] where ``seen`` (bool, same shape) is set (Keskar et al.
    2019).
    """
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def draw(
    logits: Tensor,
    params: BatchSamplingParams,
    stage: int,
    steps: Tensor,
    codebook: int = 0,
    kernels: Kernels | None = None,
) -> Tensor:
    """Draw one id per row of ``logits`` [batch, ids]; FAILED for a row with NaN."""
    if kernels is not None and logits.shape[1] <= kernels.most_ids:
        return kernels.draw(logits, params, stage, steps, codebook)
    logits = logits.float()
    best = logits.argmax(-1)
    if not params.all_greedy:
        best = torch.where(params.greedy, best, _drawn(logits, params, params.points(stage, steps, codebook)))
    return torch.where(logits.isnan().any(-1), FAILED, best)


def number_line(logits: Tensor, params: BatchSamplingParams) -> tuple[Tensor, Tensor]:
    """Return the ids kept by top-k and top-p, and the end of each one's share on the number line [batch, kept].

    They are in the order of the ids. Ordered by probability, two equally likely ids could swap places with the last bit
    of a logit, which depends on the batch.
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
