"""Projection of rows from one model's width to another's."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.weights import WeightReader


class Projection:
    """Two linear layers with a SiLU in between: rows [..., width] → [..., out]."""

    def __init__(self, read: WeightReader, width: int, inner: int, out: int) -> None:
        self.up = read("linear_fc1.weight", inner, width), read("linear_fc1.bias", inner)
        self.down = read("linear_fc2.weight", out, inner), read("linear_fc2.bias", out)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, *self.up)), *self.down)
