"""All kernels of this package behind the ``Kernels`` protocol. Imports Triton."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.worker.kernels import (
    decode_attention,
    gate,
    heads,
    norm,
    quantized_experts,
    router,
    sampling,
    snake,
    varlen_attention,
)
from engine.worker.kernels import experts as written_out
from engine.worker.kernels.by_expert import ByExpert
from engine.worker.kernels.quantized_experts import multiplied
from engine.worker.nn.quantized import QuantizedWeight, Weight

HALF = (torch.bfloat16, torch.float16)


class Launched:
    """The implementation of ``nn.kernel_loading.Kernels``."""

    most_ids = sampling.MOST_IDS
    attend = staticmethod(decode_attention.attend)
    cut = staticmethod(varlen_attention.cut)
    varlen = staticmethod(varlen_attention.varlen)
    add_norm = staticmethod(norm.add_norm)
    place = staticmethod(heads.place)
    route = staticmethod(router.route)
    swiglu = staticmethod(gate.swiglu)
    draw = staticmethod(sampling.draw)
    snake = staticmethod(snake.snake)

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
