"""Mel spectrogram to audio: BigVGAN (Lee et al. 2023), which looks a few frames back and ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.weights import WeightReader

TAPS = 12
"""Filter taps around each activation, which runs at twice the sample rate."""
FLOOR_DB, REFERENCE_DB = -115.0, 20.0
TINY = 1e-9


class Vocoder:
    """The checkpoint's vocoder (code2wav_bigvgan_model); ``samples`` is the number of samples per mel frame."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        first = config.upsample_initial_channel
        kinds = list(zip(config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True))
        self.samples = math.prod(config.upsample_rates)
        taps = low_pass(read.device).to(read.dtype)
        self.pre = _Conv(read.below("conv_pre"), config.mel_dim, first, 7)
        self.ups: list[_Up] = []
        self.blocks: list[list[_Block]] = []
        for i, (rate, kernel) in enumerate(zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)):
            wide = first // 2**i
            self.ups.append(_Up(read.below(f"ups.{i}.0"), wide, kernel, rate))
            numbers = range(i * len(kinds), (i + 1) * len(kinds))
            self.blocks.append(
                [
                    _Block(read.below(f"resblocks.{n}"), wide // 2, *kind, taps)
                    for n, kind in zip(numbers, kinds, strict=True)
                ]
            )
        last = first // 2 ** len(self.ups)
        self.activation = _Activation(read.below("activation_post.act"), last, taps)
        self.post = read("conv_post.weight", 1, last, 7)

    def __call__(self, mel: Tensor) -> Tensor:
        """Return audio [batch, samples] of mel spectrograms [batch, frames, mel]."""
        x = self.pre(_decibels(mel).transpose(1, 2))
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(x)
            x = sum((block(x) for block in blocks[1:]), blocks[0](x)) / len(blocks)
        return F.conv1d(self.activation(x), self.post, padding=3)[:, 0].clamp(-1, 1)


class _Conv:
    def __init__(self, read: WeightReader, wide: int, out: int, kernel: int, dilation: int = 1) -> None:
        self.weight = read("weight", out, wide, kernel)
        self.bias = read("bias", out)
        self.padding = (kernel - 1) * dilation // 2
        self.dilation = dilation

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv1d(x, self.weight, self.bias, padding=self.padding, dilation=self.dilation)


class _Up:
    """Transposed convolution that multiplies the sample rate and halves the channels."""

    def __init__(self, read: WeightReader, wide: int, kernel: int, rate: int) -> None:
        self.weight = read("weight", wide, wide // 2, kernel)
        self.bias = read("bias", wide // 2)
        self.rate = rate
        self.padding = (kernel - rate) // 2

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv_transpose1d(x, self.weight, self.bias, self.rate, self.padding)


class _Activation:
    """Snake activation with two parameters per channel, computed at twice the sample rate against aliasing."""

    def __init__(self, read: WeightReader, wide: int, taps: Tensor) -> None:
        self.alpha = read("alpha", wide).exp()[:, None]
        beta = read("beta", wide).exp()[:, None]
        self.scale = 1 / (beta + TINY)
        self.taps = taps.expand(wide, 1, -1)

    def __call__(self, x: Tensor) -> Tensor:
        wide, side, cut = len(self.taps), TAPS // 2 - 1, 3 * (TAPS // 2 - 1)
        x = F.pad(x, (side, side), mode="replicate")
        x = 2 * F.conv_transpose1d(x, self.taps, stride=2, groups=wide)[..., cut:-cut]
        x = x + self.scale * torch.sin(x * self.alpha) ** 2
        return F.conv1d(F.pad(x, (side, side + 1), mode="replicate"), self.taps, stride=2, groups=wide)


class _Block:
    """Residual block: dilated convolutions, each followed by an undilated one."""

    def __init__(self, read: WeightReader, wide: int, kernel: int, dilations: Sequence[int], taps: Tensor) -> None:
        self.rounds = [
            (
                _Activation(read.below(f"activations.{2 * i}.act"), wide, taps),
                _Conv(read.below(f"convs1.{i}"), wide, wide, kernel, dilation),
                _Activation(read.below(f"activations.{2 * i + 1}.act"), wide, taps),
                _Conv(read.below(f"convs2.{i}"), wide, wide, kernel),
            )
            for i, dilation in enumerate(dilations)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for bend, dilated, bend_again, plain in self.rounds:
            x = x + plain(bend_again(dilated(bend(x))))
        return x


def low_pass(device: torch.device) -> Tensor:
    """Return a Kaiser-windowed sinc [1, 1, taps] with half the sample rate as bandwidth and a sum of 1."""
    attenuation = 2.285 * (TAPS // 2 - 1) * math.pi * 4 * 0.3 + 7.95
    beta = 0.5842 * (attenuation - 21) ** 0.4 + 0.07886 * (attenuation - 21)
    if attenuation > 50:
        beta = 0.1102 * (attenuation - 8.7)
    window = torch.kaiser_window(TAPS, periodic=False, beta=beta, dtype=torch.float32)
    taps = 0.5 * window * torch.sinc(0.5 * (torch.arange(TAPS) - TAPS // 2 + 0.5))
    return (taps / taps.sum()).view(1, 1, -1).to(device)


def _decibels(mel: Tensor) -> Tensor:
    """Convert to log amplitudes from -1 (silence) to 1."""
    floor = math.exp(FLOOR_DB / 20 * math.log(10))
    decibels = 20 * torch.log10(mel.exp().clamp(min=floor)) - REFERENCE_DB
    return (2 * (decibels - FLOOR_DB) / -FLOOR_DB - 1).clamp(-1, 1)
