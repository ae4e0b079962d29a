"""The kernels of this folder as networks ask for them. Imports Triton: see ``loading``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.kernels import (
    decode_attention,
    drawing,
    gate,
    norm,
    quantized_experts,
    router,
    snake,
    varlen_attention,
)
from engine.worker.kernels import experts as written_out
from engine.worker.kernels.by_expert import ByExpert
from engine.worker.kernels.heads import place
from engine.worker.kernels.quantized_experts import multiplied
from engine.worker.nn.quantized import QuantizedWeight, Weight
from engine.worker.nn.sampling_params import BatchSamplingParams

HALF = (torch.bfloat16, torch.float16)


class Launched:
    """See ``loading.Kernels``."""

    most_ids = drawing.MOST_IDS

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
        return weight.dtype in HALF and weight.device.type != "cpu"

    def experts(self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Weight, down: Weight) -> Tensor:
        if isinstance(gate_up, Tensor) or isinstance(down, Tensor):
            assert isinstance(gate_up, Tensor)
            assert isinstance(down, Tensor)
            return written_out.answers(x, experts, shares, gate_up, down)
        top_k, sorted_ = experts.shape[1], ByExpert.of(experts, len(gate_up))
        inner = gate.swiglu(multiplied(x, top_k, gate_up, sorted_))
        return multiplied(inner, top_k, down, sorted_, shares.flatten()).view(len(x), top_k, -1).sum(1)

    def add_norm(self, x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return norm.add_norm(x, more, weight, eps)

    def place(
        self,
        heads: Tensor,
        norms: tuple[Tensor, Tensor] | None,
        eps: float,
        angles: tuple[Tensor, Tensor],
        at: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        return place(heads, norms, eps, angles, at, keys, values)

    def route(self, logits: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
        return router.route(logits, top_k, normalise)

    def swiglu(self, x: Tensor) -> Tensor:
        return gate.swiglu(x)

    def draw(self, logits: Tensor, params: BatchSamplingParams, stage: int, steps: Tensor, codebook: int) -> Tensor:
        return drawing.draw(logits, params, stage, steps, codebook)

    def snake(
        self, x: Tensor, alpha: Tensor, inverse: Tensor, past: Tensor | None, slots: Tensor, before: int
    ) -> Tensor:
        return snake.snake(x, alpha, inverse, past, slots, before)
