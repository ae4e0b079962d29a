"""Codes to a mel spectrogram: a diffusion transformer trained with flow matching.

Mel frames attend to their own block; in some layers also to the previous or the next block. Classifier-free guidance
doubles each forward pass with a half that has neither voice nor codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.models.qwen2_5_omni.source import TalkerVoice
from engine.worker.nn.ecapa import Ecapa
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.weights import WeightReader

POINTS = 10
"""Points of the time grid; like the next two values, the reference's default."""
GUIDANCE = 0.5
SWAY = -1.0
"""Sway sampling coefficient, which concentrates points early: F5-TTS (Chen et al. 2024)."""
EPS = 1e-6
TIME_WIDTH = 256


class Dit:
    """The diffusion transformer from codec codes to mel spectrograms.

    Its weights are the module ``code2wav_dit_model`` of the checkpoint.
    """

    def __init__(self, read: WeightReader, config: Any) -> None:
        self.block = config.block_size
        self.repeats = config.repeats
        self.mel_width = config.mel_dim
        self.device = read.device
        width = config.hidden_size
        self.codes = read("text_embed.codec_embed.weight", config.num_embeds + 1, config.emb_dim)
        sizes = [config.mel_dim, config.enc_dim, config.emb_dim, config.enc_emb_dim]
        whole = read("input_embed.proj.weight", width, sum(sizes))
        self.from_mel, self.from_voice, self.from_codes, self.from_speaker = whole.split(sizes, 1)
        self.bias = read("input_embed.proj.bias", width)
        self._encoder = Ecapa(read.below("input_embed.spk_encoder"), config)
        self.times = _Times(read.below("time_embed.time_mlp"), width)
        self.layers = [
            _Layer(
                read.below(f"transformer_blocks.{i}"),
                config,
                i in config.look_backward_layers,
                i in config.look_ahead_layers,
            )
            for i in range(config.num_hidden_layers)
        ]
        self.norm_out = read("norm_out.linear.weight", 2 * width, width), read("norm_out.linear.bias", 2 * width)
        self.out = read("proj_out.weight", config.mel_dim, width), read("proj_out.bias", config.mel_dim)
        self.rope = Rope(config.head_dim, config.rope_parameters["rope_theta"], read.device)

    def voice_row(self, voice: TalkerVoice) -> Tensor:
        """Return a voice's contribution [2, width] to every input row: with the voice, and without."""
        speaker, mel = voice.speaker.to(self.device), voice.mel.to(self.device)
        spoken = self._encoder(torch.stack((mel, torch.zeros_like(mel))).transpose(1, 2)) @ self.from_voice.T
        return spoken + torch.stack((speaker @ self.from_speaker.T, torch.zeros_like(spoken[1])))

    def sample(self, noise: Tensor, codes: Tensor, voices: Tensor) -> Tensor:
        """Sample mel spectrograms.

        Args:
            noise: Initial noise [batch, frames, mel], with ``repeats`` frames per code.
            codes: Codec codes [batch, codes].
            voices: Results of ``voice_row`` [batch, 2, width]: with the voice, and without it for the guidance.

        Returns:
            Mel spectrograms [batch, frames, mel].
        """
        known = self._known(codes, voices)
        positions = torch.arange(noise.shape[1], device=self.device)
        angles, masks = self.rope(positions[None].float(), noise.dtype), self._masks(positions)
        points = torch.linspace(0, 1, POINTS, device=self.device)
        points = points + SWAY * (torch.cos(torch.pi / 2 * points) - 1 + points)

        def velocity(time: Tensor, mel: Tensor) -> Tensor:
            guided, free = self._forward(mel, known, time, angles, masks).chunk(2)
            return guided + (guided - free) * GUIDANCE

        return integrate(velocity, noise, points)

    def _known(self, codes: Tensor, voices: Tensor) -> Tensor:
        """Return the time-independent part of all input rows [2 batch, frames, width]: with codes, then without."""
        both = self.codes[torch.cat((codes, torch.zeros_like(codes)))] @ self.from_codes.T
        known = both.repeat_interleave(self.repeats, 1) + self.bias
        return known + voices.transpose(0, 1).flatten(0, 1)[:, None]

    def _masks(self, positions: Tensor) -> dict[tuple[bool, bool], Tensor]:
        """Return attention masks [frames, frames] for layers that look one block back, one ahead, both or neither."""
        blocks = positions // self.block
        apart = blocks - blocks[:, None]
        return {
            (back, ahead): (apart >= -int(back)) & (apart <= int(ahead))
            for back in (False, True)
            for ahead in (False, True)
        }

    def _forward(
        self, mel: Tensor, known: Tensor, time: Tensor, angles: tuple[Tensor, Tensor], masks: dict[Any, Tensor]
    ) -> Tensor:
        x = torch.cat((mel, mel)) @ self.from_mel.T + known
        emb = F.silu(self.times(time))
        for layer in self.layers:
            x = layer.forward(x, emb, angles, masks[layer.looks])
        scale, shift = F.linear(emb, *self.norm_out).chunk(2)
        return F.linear(_norm(x) * (1 + scale) + shift, *self.out)


class _Times:
    """Embedding of the time between noise (0) and audio (1)."""

    def __init__(self, read: WeightReader, width: int) -> None:
        self.up = read("0.weight", width, TIME_WIDTH), read("0.bias", width)
        self.down = read("2.weight", width, width), read("2.bias", width)
        half = TIME_WIDTH // 2
        self._rates = torch.exp(torch.arange(half, device=read.device).float() * -(math.log(10000) / (half - 1)))

    def __call__(self, time: Tensor) -> Tensor:
        angles = 1000 * time * self._rates
        return F.linear(F.silu(F.linear(torch.cat((angles.sin(), angles.cos())), *self.up)), *self.down)


class _Layer:
    """Attention and feed-forward with adaptive layer norm, modulated by time (Peebles and Xie 2023)."""

    def __init__(self, read: WeightReader, config: Any, back: bool, ahead: bool) -> None:
        self.looks = (back, ahead)
        self.heads = config.num_attention_heads
        width, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        names, sizes = ("to_q", "to_k", "to_v"), (inner, inner, inner)
        attention, feed = read.below("attn"), int(width * config.ff_mult)
        self.time = read("attn_norm.linear.weight", 6 * width, width), read("attn_norm.linear.bias", 6 * width)
        self.qkv = attention.joined([f"{name}.weight" for name in names], sizes, width)
        self.qkv_bias = attention.joined([f"{name}.bias" for name in names], sizes)
        self.out = attention("to_out.0.weight", width, inner), attention("to_out.0.bias", width)
        self.up = read("ff.ff.0.weight", feed, width), read("ff.ff.0.bias", feed)
        self.down = read("ff.ff.3.weight", width, feed), read("ff.ff.3.bias", width)

    def forward(self, x: Tensor, emb: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        shift, scale, gate, feed_shift, feed_scale, feed_gate = F.linear(emb, *self.time).chunk(6)
        x = x + gate * self._attend(_norm(x) * (1 + scale) + shift, angles, mask)
        inner = F.linear(_norm(x) * (1 + feed_scale) + feed_shift, *self.up)
        return x + feed_gate * F.linear(F.gelu(inner, approximate="tanh"), *self.down)

    def _attend(self, x: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        batch, count, _ = x.shape
        heads = F.linear(x, self.qkv, self.qkv_bias).view(batch, count, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(_turned(query, angles), _turned(key, angles), value, attn_mask=mask)
        return F.linear(mixed.transpose(1, 2).reshape(batch, count, -1), *self.out)


def integrate(velocity: Callable[[Tensor, Tensor], Tensor], start: Tensor, points: Tensor) -> Tensor:
    """Integrate ``velocity(time, value)`` over the time points with the fourth-order Runge-Kutta 3/8 rule."""
    value = start
    for begin, end in pairwise(points):
        step = end - begin
        k1 = velocity(begin, value)
        k2 = velocity(begin + step * (1 / 3), value + step * k1 * (1 / 3))
        k3 = velocity(begin + step * (2 / 3), value + step * (k2 - k1 * (1 / 3)))
        k4 = velocity(end, value + step * (k1 - k2 + k3))
        value = value + (k1 + 3 * (k2 + k3) + k4) * step / 8
    return value


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=EPS)


def _turned(heads: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary embedding to the first head only, with interleaved channel pairs, as in training."""
    first = torch.cat((heads[:, :1, :, 0::2], heads[:, :1, :, 1::2]), -1)
    return torch.cat((rotate(first, *angles), heads[:, 1:]), 1)
