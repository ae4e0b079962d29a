"""Decoder of a neural audio codec: frames to audio, piece by piece, with each request's past in a slot.

Codes are embedded and pass a windowed transformer (the codec's front), then transposed convolutions and residual units
(HiFi-GAN with snake activations).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.nn.conv import CausalConv, CausalTransposedConv, ConvBatch
from engine.worker.nn.weights import WeightReader
from engine.worker.nn.window import WindowedDecoder


class Front(Protocol):
    """First part of a codec's decoder: codes to hidden columns."""

    groups: int
    """Codes per frame."""
    book: int
    """Entries per codebook."""
    width: int

    def __call__(self, codes: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        """Return columns [batch, width, frames] for codes [batch, frames, groups]; see ``CodecDecoder.decode``."""
        ...


class CodecDecoder:
    """Decodes frames to audio; the samples do not depend on how the frames are cut.

    With ``late`` transposed convolutions, the output is trimmed by their stride at both ends. The first frame then has
    a few hundred samples less.
    """

    def __init__(self, read: WeightReader, config: Any, slots: int, front: Front, late: bool) -> None:
        if math.prod(config.upsampling_ratios) < 2:
            raise WeightsError("upsampling_ratios: a codec without upsampling is not supported")
        self.front = front
        width = front.width
        self.widen = [
            (
                CausalTransposedConv(read.below(f"upsample.{i}.0"), slots, width, width, ratio, ratio),
                ConvNeXtBlock(read.below(f"upsample.{i}.1"), slots, width),
            )
            for i, ratio in enumerate(config.upsampling_ratios)
        ]
        self.enter = CausalConv(read.below("decoder.0"), slots, width, config.decoder_dim, 7)
        self.blocks = [
            Upsampler(read.below(f"decoder.{i + 1}.block"), slots, config.decoder_dim >> i, rate, late)
            for i, rate in enumerate(config.upsample_rates)
        ]
        last, out = len(self.blocks) + 1, config.decoder_dim >> len(self.blocks)
        self.snake = Snake(read.below(f"decoder.{last}"), out)
        self.leave = CausalConv(read.below(f"decoder.{last + 1}"), slots, out, 1, 7)

    def decode(self, codes: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        """Return the audio [batch, samples] of the next frames [batch, frames, codebooks].

        ``starts`` [batch] are the numbers of frames that each slot has had.
        """
        x = self.front(codes, starts, piece)
        for widen, convnext in self.widen:
            x = convnext(widen(x, piece), piece)
        x = self.enter(x, piece)
        for block in self.blocks:
            x = block(x, piece)
        return self.leave(x, piece, self.snake)[:, 0].clamp(-1, 1)


class MeanOfBooks:
    """Front that averages a frame's code embeddings and applies a windowed transformer (checkpoint tensor
    code_embedding).
    """

    def __init__(self, read: WeightReader, config: Any, slots: int) -> None:
        self.book = config.codebook_size
        self.groups = config.num_quantizers
        self.width = config.hidden_size
        self.codes = read("code_embedding.weight", self.book * self.groups, self.width)
        self.offsets = torch.arange(self.groups, device=read.device) * self.book
        self.decoder = WindowedDecoder(read.below("pre_transformer"), config, slots)

    def __call__(self, codes: Tensor, starts: Tensor, piece: ConvBatch) -> Tensor:
        return self.decoder.forward(self.codes[codes + self.offsets].mean(2), starts, piece).transpose(1, 2)


class ConvNeXtBlock:
    """Depthwise convolution, norm and feed-forward network, scaled per channel (ConvNeXt: Liu et al. 2022)."""

    def __init__(self, read: WeightReader, slots: int, width: int) -> None:
        self.mix = CausalConv(read.below("dwconv"), slots, width, width, 7, groups=width)
        self.norm = read("norm.weight", width), read("norm.bias", width)
        self.up = read("pwconv1.weight", 4 * width, width), read("pwconv1.bias", 4 * width)
        self.down = read("pwconv2.weight", width, 4 * width), read("pwconv2.bias", width)
        self.scale = read("gamma", width)

    def __call__(self, x: Tensor, piece: ConvBatch) -> Tensor:
        y = self.mix(x, piece).transpose(1, 2)
        y = F.layer_norm(y, y.shape[-1:], *self.norm, eps=1e-6)
        y = F.linear(F.gelu(F.linear(y, *self.up)), *self.down)
        return x + (self.scale * y).transpose(1, 2)


class Snake:
    """Periodic activation x + sin²(αx)/β (Ziyin et al. 2020)."""

    def __init__(self, read: WeightReader, width: int) -> None:
        self.alpha = read("alpha", width).exp()[:, None]
        self.inverse = 1 / (read("beta", width).exp()[:, None] + 1e-9)
        self._kernels = read.kernels

    def behind(self, past: Tensor | None, length: int, x: Tensor, slots: Tensor) -> Tensor:
        """See ``conv.Shaped``."""
        if self._kernels is not None:
            return self._kernels.snake(x, self.alpha, self.inverse, past, slots, length)
        found = x + self.inverse * torch.sin(x * self.alpha) ** 2
        if not length:
            return found
        head = x.new_zeros(*x.shape[:2], length) if past is None else past[slots]
        return torch.cat((head, found), -1)


class Upsampler:
    """Transposed convolution and three residual units of growing dilation (HiFi-GAN: Kong et al. 2020)."""

    def __init__(self, read: WeightReader, slots: int, width: int, rate: int, late: bool) -> None:
        out = width // 2
        self.snake = Snake(read.below("0"), width)
        self.widen = CausalTransposedConv(read.below("1"), slots, width, out, 2 * rate, rate, late)
        self.units = [
            (
                Snake(read.below(f"{i}.act1"), out),
                CausalConv(read.below(f"{i}.conv1"), slots, out, out, 7, dilation),
                Snake(read.below(f"{i}.act2"), out),
                CausalConv(read.below(f"{i}.conv2"), slots, out, out, 1),
            )
            for i, dilation in ((2, 1), (3, 3), (4, 9))
        ]

    def __call__(self, x: Tensor, piece: ConvBatch) -> Tensor:
        x = self.widen(x, piece, self.snake)
        for first, dilated, second, join in self.units:
            x = x + join(dilated(x, piece, first), piece, second)
        return x
