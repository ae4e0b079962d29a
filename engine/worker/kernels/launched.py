"""The kernels of this folder as networks ask for them. Imports Triton: see ``loading``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.kernels import decode_attention, gate, norm, quantized_experts, router, snake, varlen_attention
from engine.worker.kernels import experts as written_out
from engine.worker.kernels.heads import place
from engine.worker.kernels.quantized_experts import multiplied
from engine.worker.nn import moe
from engine.worker.nn.quantized import QuantizedWeight, Weight

MOST_ROWS = 256
"""Rows up to which an expert has few, so that its weights are what counts; for more, torch's grouped product is
sooner done where there is one."""
HALF = (torch.bfloat16, torch.float16)


class Launched:
    """See ``loading.Kernels``."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, begins: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        return decode_attention.attend(query, keys, values, begins, lengths, longest)

    def cut(self, begins: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
        return varlen_attention.cut(begins, starts, counts)

    def varlen(self, query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor) -> Tensor:
        return varlen_attention.varlen(query, keys, values, blocks)

    def takes(self, weight: Weight) -> bool:
        if isinstance(weight, QuantizedWeight):
            return quantized_experts.takes(weight)
        return weight.dtype in HALF and weight.device.type == "cuda"

    def experts(self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Weight, down: Weight) -> Tensor:
        if isinstance(gate_up, Tensor) or isinstance(down, Tensor):
            assert isinstance(gate_up, Tensor)
            assert isinstance(down, Tensor)
            if len(x) > MOST_ROWS and moe.has_grouped(x.device, x.dtype):
                return moe.moe(x, experts, shares, gate_up, down, gate.swiglu)
            return written_out.answers(x, experts, shares, gate_up, down)
        top_k = experts.shape[1]
        order, blocks = written_out.sorted_blocks(experts, len(gate_up))
        alone = torch.arange(len(order), device=x.device)
        inner = gate.swiglu(multiplied(x, order // top_k, gate_up, blocks, alone))
        answers = multiplied(inner, alone, down, blocks, order, shares.flatten()[order])
        return answers.view(len(x), top_k, -1).sum(1)

    def add_norm(self, x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return norm.add_norm(x, more, weight, eps)

    def place(
        self, heads: Tensor, norms: tuple[Tensor, Tensor] | None, eps: float, angles: tuple[Tensor, Tensor],
        at: Tensor, keys: Tensor, values: Tensor,
    ) -> Tensor:  # fmt: skip
        return place(heads, norms, eps, angles, at, keys, values)

    def route(self, logits: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
        return router.route(logits, top_k, normalise)

    def swiglu(self, x: Tensor) -> Tensor:
        return gate.swiglu(x)

    def snake(
        self, x: Tensor, alpha: Tensor, inverse: Tensor, past: Tensor | None, slots: Tensor, before: int
    ) -> Tensor:
        return snake.snake(x, alpha, inverse, past, slots, before)
