"""First part of the 12 Hz codec's decoder: residual codebooks, a convolution and a windowed transformer."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.conv import CausalConv, ConvBatch
from engine.worker.nn.weights import WeightReader
from engine.worker.nn.window import WindowedDecoder


class ResidualBooks:
    """Sums the vectors of the first codebook (semantic) and of the others (acoustic), and projects each sum.

    Source: modeling_qwen3_tts_tokenizer_v2 of qwen-tts 0.1.1. The checkpoint stores vectors as sums with usage counts.
    """

    def __init__(self, read: WeightReader, config: Any, slots: int) -> None:
        self.book = config.codebook_size
        self.groups = config.num_quantizers
        self.width = config.latent_dim
        quantizer, inner = read.below("quantizer"), config.codebook_dim
        books = [_book(quantizer.below("rvq_first.vq.layers.0"), self.book, inner // 2)]
        rest = range(self.groups - 1)
        books += [_book(quantizer.below(f"rvq_rest.vq.layers.{i}"), self.book, inner // 2) for i in rest]
        self.codes = torch.cat(books)
        self.offsets = torch.arange(self.groups, device=read.device) * self.book
        first, others = (
            quantizer(f"{name}.output_proj.weight", inner, inner // 2, 1) for name in ("rvq_first", "rvq_rest")
        )
        self.project = torch.cat((first[..., 0], others[..., 0]), 1)
        self.enter = CausalConv(read.below("pre_conv"), slots, inner, self.width, 3)
        stack, width = read.below("pre_transformer"), config.hidden_size
        self.into = stack("input_proj.weight", width, self.width), stack("input_proj.bias", width)
        self.out = stack("output_proj.weight", self.width, width), stack("output_proj.bias", self.width)
        self.decoder = WindowedDecoder(stack, config, slots)

    def __call__(self, codes: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        vectors = self.codes[codes + self.offsets]
        sums = torch.cat((vectors[:, :, 0], vectors[:, :, 1:].sum(2)), -1)
        x = self.enter(F.linear(sums, self.project).transpose(1, 2), piece).transpose(1, 2)
        x = self.decoder.forward(F.linear(x, *self.into), starts, piece)
        return F.linear(x, *self.out).transpose(1, 2)


def _book(read: WeightReader, size: int, width: int) -> Tensor:
    use = read("_codebook.cluster_usage", size).clamp(min=1e-5)
    return read("_codebook.embedding_sum", size, width) / use[:, None]
