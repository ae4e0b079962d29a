"""The kernels of this folder as networks ask for them. Imports Triton: see ``loading``."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from engine.worker.kernels import decode_attention, quantized_experts
from engine.worker.kernels.quantized_experts import Blocks, multiplied
from engine.worker.nn.quantized import QuantizedWeight, Weight


class Launched:
    """See ``loading.Kernels``."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, begins: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        return decode_attention.attend(query, keys, values, begins, lengths, longest)

    def takes(self, weight: Weight) -> TypeGuard[QuantizedWeight]:
        return isinstance(weight, QuantizedWeight) and quantized_experts.takes(weight)

    def experts(
        self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: QuantizedWeight, down: QuantizedWeight
    ) -> Tensor:
        top_k = experts.shape[1]
        order = torch.argsort(experts.flatten(), stable=True)
        blocks = Blocks.of(experts.flatten()[order], len(gate_up))
        alone = torch.arange(len(order), device=x.device)
        gate, value = multiplied(x, order // top_k, gate_up, blocks, alone).chunk(2, -1)
        inner = torch.nn.functional.silu(gate) * value
        answers = multiplied(inner, alone, down, blocks, order, shares.flatten()[order])
        return answers.view(len(x), top_k, -1).sum(1)
