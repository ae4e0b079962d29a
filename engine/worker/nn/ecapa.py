"""Speaker embedding from a mel spectrogram (ECAPA-TDNN: Desplanques et al. 2020).

Sources: Qwen3TTSSpeakerEncoder of qwen-tts 0.1.1; ECAPA_TimeDelayNet of transformers 5.23, models/qwen2_5_omni.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.weights import WeightReader


class Ecapa:
    """Dilated convolutions with channel attention over the whole recording, then mean and deviation over time."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        channels, kernels, dilations = config.enc_channels, config.enc_kernel_sizes, config.enc_dilations
        self.enter = Conv(read.below("blocks.0.conv"), config.mel_dim, channels[0], kernels[0], dilations[0])
        self.blocks = [
            _Block(read.below(f"blocks.{i}"), channels[i - 1], channels[i], kernels[i], dilations[i], config)
            for i in range(1, len(channels) - 1)
        ]
        wide = channels[-1]
        self.merge = Conv(read.below("mfa.conv"), sum(channels[1:-1]), wide, kernels[-1], dilations[-1])
        self.weigh = Conv(read.below("asp.tdnn.conv"), 3 * wide, config.enc_attention_channels, 1)
        self.share = Conv(read.below("asp.conv"), config.enc_attention_channels, wide, 1)
        self.leave = Conv(read.below("fc"), 2 * wide, config.enc_dim, 1)

    def __call__(self, mel: Tensor) -> Tensor:
        """Return embeddings [batch, width] of mel spectrograms [batch, mels, frames]."""
        x = F.relu(self.enter(mel))
        found: list[Tensor] = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        x = F.relu(self.merge(torch.cat(found, 1)))
        alike = torch.full_like(x, 1 / x.shape[-1])
        context = [value[..., None].expand_as(x) for value in _statistics(x, alike)]
        shares = self.share(F.relu(self.weigh(torch.cat((x, *context), 1))).tanh()).softmax(-1)
        return self.leave(torch.cat(_statistics(x, shares), 1)[..., None])[..., 0]


class Conv:
    """Convolution with reflection padding and as many output as input columns."""

    def __init__(self, read: WeightReader, into: int, out: int, kernel: int, dilation: int = 1) -> None:
        self.weight = read("weight", out, into, kernel)
        self.bias = read("bias", out)
        self.dilation = dilation
        self.pad = (kernel - 1) * dilation

    def __call__(self, x: Tensor) -> Tensor:
        if self.pad:
            x = F.pad(x, (self.pad // 2, self.pad - self.pad // 2), mode="reflect")
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation)


class _Block:
    """Res2Net between two pointwise convolutions, then squeeze-and-excitation."""

    def __init__(self, read: WeightReader, into: int, out: int, kernel: int, dilation: int, config: Any) -> None:
        part = out // config.enc_res2net_scale
        self.scale = config.enc_res2net_scale
        self.first = Conv(read.below("tdnn1.conv"), into, out, 1)
        self.steps = [
            Conv(read.below(f"res2net_block.blocks.{i}.conv"), part, part, kernel, dilation)
            for i in range(self.scale - 1)
        ]
        self.last = Conv(read.below("tdnn2.conv"), out, out, 1)
        self.squeeze = Conv(read.below("se_block.conv1"), out, config.enc_se_channels, 1)
        self.excite = Conv(read.below("se_block.conv2"), config.enc_se_channels, out, 1)

    def __call__(self, x: Tensor) -> Tensor:
        first, *others = F.relu(self.first(x)).chunk(self.scale, 1)
        parts, before = [first], torch.zeros_like(first)
        for step, part in zip(self.steps, others, strict=True):
            before = F.relu(step(part + before))
            parts.append(before)
        y = F.relu(self.last(torch.cat(parts, 1)))
        gate = self.excite(F.relu(self.squeeze(y.mean(2, keepdim=True)))).sigmoid()
        return y * gate + x


def _statistics(x: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted mean and deviation [batch, channels] over time."""
    mean = (shares * x).sum(2)
    return mean, ((shares * (x - mean[..., None]) ** 2).sum(2)).clamp(1e-12).sqrt()
