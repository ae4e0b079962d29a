"""Sparse mixture-of-experts layer: each row is processed by its top-k experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.device import nvidia_capability
from engine.worker.nn.quantized import QuantizedWeight, Weight, dense, linear

MOST_GATHERED = 512  # maximum assignments to gather: 64 rows of 8 experts
MOST_WRITTEN = 64
"""Maximum assignments whose quantized weights are dequantized at once: 600 MB for Qwen3-Omni's thinker."""


def swiglu(x: Tensor) -> Tensor:
    """Return SiLU(gate) · value for concatenated gates and values [..., 2 · inner]."""
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


Gate = Callable[[Tensor], Tensor]
"""An implementation of ``swiglu``."""


def route(x: Tensor, router: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """Return the experts of each row [rows, top_k] and their shares."""
    shares, experts = torch.topk(F.linear(x, router).softmax(-1, dtype=torch.float32), top_k, -1)
    if normalise:
        shares = shares / shares.sum(-1, keepdim=True)
    return experts, shares.to(x.dtype)


def moe(x: Tensor, experts: Tensor, shares: Tensor, gate_up: Weight, down: Weight, gated: Gate = swiglu) -> Tensor:
    """Return the weighted sum of the experts' outputs.

    On a CPU, only the chosen experts are computed, because reading their weights is the main cost. On a GPU, the choice
    is not copied to the host: all experts are one grouped product if the GPU supports it; otherwise the weights of few
    rows are gathered. Quantized experts are dequantized temporarily: those of few rows, or all of the layer.

    Args:
        x: Input rows [rows, width].
        experts: Experts of each row [rows, top_k].
        shares: Their shares, of the same shape.
        gate_up: Weights [experts, 2 · inner, width].
        down: Weights [experts, width, inner].
        gated: The gated activation.
    """
    if x.device.type != "cpu" and experts.numel() <= _most_gathered(x, gate_up):
        answers = gathered(x, experts, gate_up, down, gated)
        return (answers * shares[..., None]).sum(1)
    order = torch.argsort(experts.flatten(), stable=True)
    chosen, owners = experts.flatten()[order], order // experts.shape[1]
    if x.device.type == "cpu":
        answers = _walked(x[owners], chosen, gate_up, down, gated) * shares.flatten()[order][:, None]
        return torch.zeros_like(x).index_add_(0, owners, answers)
    if has_grouped(x.device, x.dtype):
        answers = grouped(x[owners], chosen, gate_up, down, gated)
    else:
        answers = _walked(x[owners], chosen, gate_up, down, gated)
    back = torch.empty_like(answers).index_copy_(0, order, answers)  # on a GPU, the order of index_add_ varies
    return (back.view(*experts.shape, -1) * shares[..., None]).sum(1)


def _most_gathered(x: Tensor, gate_up: Weight) -> int:
    """Return the maximum number of assignments for which weights are gathered."""
    if has_grouped(x.device, x.dtype):
        return MOST_WRITTEN if isinstance(gate_up, QuantizedWeight) else 0
    return MOST_GATHERED


@cache
def has_grouped(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the GPU has fast grouped matrix products; elsewhere torch synchronizes once per group."""
    return dtype == torch.bfloat16 and nvidia_capability(device) in (9, 10)


def _walked(inputs: Tensor, chosen: Tensor, gate_up: Weight, down: Weight, gated: Gate = swiglu) -> Tensor:
    numbers, counts = torch.unique_consecutive(chosen, return_counts=True)
    parts = zip(numbers.tolist(), inputs.split(counts.tolist()), strict=True)
    return torch.cat([linear(gated(linear(part, gate_up[n])), down[n]) for n, part in parts])


def grouped(inputs: Tensor, chosen: Tensor, gate_up: Weight, down: Weight, gated: Gate = swiglu) -> Tensor:
    """Compute the experts as one grouped product per layer, from rows sorted by expert.

    The first dequantized weights are freed before the second ones are made.
    """
    ends = torch.searchsorted(chosen, torch.arange(len(gate_up), device=chosen.device), right=True).to(torch.int32)
    inner = gated(F.grouped_mm(inputs, dense(gate_up).transpose(1, 2), offs=ends))
    return F.grouped_mm(inner, dense(down).transpose(1, 2), offs=ends)


def gathered(x: Tensor, experts: Tensor, gate_up: Weight, down: Weight, gated: Gate = swiglu) -> Tensor:
    """Return each expert's output for each row [rows, top_k, width], from copies of the weights; for few rows."""
    few = max(1, MOST_WRITTEN // experts.shape[1])
    if isinstance(gate_up, QuantizedWeight) and len(x) > few:
        parts = zip(x.split(few), experts.split(few), strict=True)
        return torch.cat([gathered(*part, gate_up, down, gated) for part in parts])
    chosen = experts.flatten()
    inputs = x.repeat_interleave(experts.shape[1], 0)[..., None]
    inner = gated(torch.bmm(dense(gate_up[chosen]), inputs)[..., 0])
    return torch.bmm(dense(down[chosen]), inner[..., None]).view(*experts.shape, -1)
