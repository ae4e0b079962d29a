"""A sparse feed-forward layer: each row goes to its few best experts. Rows do not see each other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def route(x: Tensor, router: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
    """The experts of each row [rows, top_k] and their shares."""
    shares, experts = torch.topk(F.linear(x, router).softmax(-1, dtype=torch.float32), top_k, -1)
    if normalise:
        shares = shares / shares.sum(-1, keepdim=True)
    return experts, shares.to(x.dtype)


def mixture(x: Tensor, experts: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """The experts' answers, weighted: ``x`` [rows, width], ``gate_up`` [experts, 2·inner, width], ``down`` back.

    On a GPU all experts are one grouped product, without asking the device who was chosen. A CPU walks over those that
    were: their weights are what has to come from memory.
    """
    rows = torch.argsort(experts.flatten(), stable=True)
    chosen, shares = experts.flatten()[rows], shares.flatten()[rows]
    inputs = x[rows // experts.shape[1]]
    compute = _walked if x.device.type == "cpu" else grouped
    answers = compute(inputs, chosen, gate_up, down) * shares[:, None]
    return torch.zeros_like(x).index_add_(0, rows // experts.shape[1], answers)


def _walked(inputs: Tensor, chosen: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    numbers, counts = torch.unique_consecutive(chosen, return_counts=True)
    parts = zip(numbers.tolist(), inputs.split(counts.tolist()), strict=True)
    return torch.cat([F.linear(swiglu(F.linear(part, gate_up[n])), down[n]) for n, part in parts])


def grouped(inputs: Tensor, chosen: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """The same as one product per layer: rows sorted by expert, and where each expert's rows end."""
    ends = torch.searchsorted(chosen, torch.arange(len(gate_up), device=chosen.device), right=True).to(torch.int32)
    inner = swiglu(F.grouped_mm(inputs, gate_up.transpose(1, 2), offs=ends))
    return F.grouped_mm(inner, down.transpose(1, 2), offs=ends)


def swiglu(x: Tensor) -> Tensor:
    """Gate and value side by side → their gated product."""
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value
