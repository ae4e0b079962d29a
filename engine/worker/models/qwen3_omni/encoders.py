"""Audio and vision encoders, which produce input rows of the thinker.

Source: transformers 5.23, models/qwen3_omni_moe.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.models.qwen3_omni.source import audio_tokens
from engine.worker.nn import encoder
from engine.worker.nn.captured import Captured
from engine.worker.nn.cuda_graph_runner import doubled
from engine.worker.nn.device import to_device
from engine.worker.nn.encoder import Grid, LayerNorm, Linear, Merger
from engine.worker.nn.weights import WeightReader

NORM_EPS = 1e-6
PARTS = 4  # number of padded window lengths; many sounds are shorter than a full window
MOST_WINDOWS = 16
"""Maximum windows (eight seconds each in the released checkpoint) per GPU batch; their widest layer takes 400 MB."""


class Qwen3OmniAudioEncoder:
    """Encodes pieces of 2 ``n_window`` mel frames by convolution; rows attend within windows of ``n_window_infer``
    frames.
    """

    def __init__(self, read: WeightReader, config: Any) -> None:
        self.piece = 2 * config.n_window
        self.batch = config.conv_chunksize
        self.window = config.n_window_infer // self.piece  # length in pieces
        width, channels = config.d_model, config.downsample_hidden_size
        into = (1, channels, channels)
        self.convolutions = [
            (read(f"conv2d{i}.weight", channels, into[i - 1], 3, 3), read(f"conv2d{i}.bias", channels))
            for i in (1, 2, 3)
        ]
        high = (((config.num_mel_bins + 1) // 2 + 1) // 2 + 1) // 2
        self.enter = Linear(read.below("conv_out"), channels * high, width, biased=False)
        self.times = encoder.sinusoids(config.max_source_positions, width, read.device)
        self.layers = [
            encoder.AudioLayer(read.below(f"layers.{i}"), config, key_biased=True) for i in range(config.encoder_layers)
        ]
        self.norm = LayerNorm(read.below("ln_post"), width)
        self.activate = encoder.activation(config.activation_function)
        self.up = Linear(read.below("proj1"), width, width)
        self.out = Linear(read.below("proj2"), width, config.output_dim)
        self._shape = int(config.num_mel_bins), read.dtype
        self.filled = read.device.type != "cpu"
        """Whether windows are padded to a common length, so that a batch is one attention call and one graph per
        size.
        """
        self.lengths = sorted({max(1, self.window * part // PARTS) for part in range(1, PARTS + 1)})
        """Window lengths, in pieces, to which all windows of a batch are padded."""
        self._captured = Captured("ears", self._windows, self._idle, read.device, read.static)
        sizes = itertools.product(reversed(doubled(1, MOST_WINDOWS)), reversed(self.lengths))
        self._captured.warm(list(sizes))  # largest first, so that the others fit into its memory

    def __call__(self, mel: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the rows [rows, width] of audio clips.

        Their mel frames [mels, frames] are concatenated, ``lengths`` frames each.
        """
        if self.filled and max(lengths) >= self.piece:
            parts = encoder.pieces(lengths, self.piece * self.window)
            return self._filled(mel, parts) if len(parts) <= MOST_WINDOWS else self._sorted(mel, parts)
        sizes = encoder.pieces(lengths, self.piece)
        counts = [audio_tokens(size, self.piece) for size in sizes]
        x = self._convolved(encoder.padded(mel, sizes)[:, None])
        x = encoder.unpadded(x + self.times[: x.shape[1]].to(x.dtype), counts)
        totals = [audio_tokens(length, self.piece) for length in lengths]
        windows = encoder.pieces(totals, max(counts) * self.window)
        for layer in self.layers:
            x = layer(x, windows)
        return self.out(self.activate(self.up(self.norm(x))))

    def _sorted(self, mel: Tensor, parts: Sequence[int]) -> Tensor:
        """Encode many windows in batches of similar length."""
        order, frames = np.argsort(parts, kind="stable"), mel.split(list(parts), 1)
        found: dict[int, Tensor] = {}
        for at in range(0, len(order), MOST_WINDOWS):
            some = order[at : at + MOST_WINDOWS].tolist()
            embeds = self._filled(torch.cat([frames[i] for i in some], 1), [parts[i] for i in some])
            counts = [audio_tokens(parts[i], self.piece) for i in some]
            found |= dict(zip(some, embeds.split(counts), strict=True))
        return torch.cat([found[i] for i in range(len(parts))])

    def _filled(self, mel: Tensor, parts: Sequence[int]) -> Tensor:
        """Encode at most MOST_WINDOWS windows, padded to one length."""
        pieces = next(pieces for pieces in self.lengths if pieces * self.piece >= max(parts))
        span = self.piece * pieces
        at = np.concatenate([number * span + np.arange(count) for number, count in enumerate(parts)])
        frames = mel.new_zeros(len(parts) * span, len(mel))
        frames[to_device(at, mel.device)] = mel.T
        counts = np.array([audio_tokens(count, self.piece) for count in parts])
        real = np.arange(audio_tokens(span, self.piece)) < counts[:, None]
        size = next(size for size in doubled(1, MOST_WINDOWS) if size >= len(parts))
        (found,) = self._captured((size, pieces), frames.view(len(parts), span, len(mel)), real)
        return found[to_device(np.flatnonzero(real), mel.device)]

    def _idle(self, shape: tuple[int, int]) -> tuple[Tensor, NDArray[np.bool_]]:
        (size, pieces), (mels, dtype) = shape, self._shape
        span = self.piece * pieces
        frames = torch.zeros(size, span, mels, device=self.times.device, dtype=dtype)
        return frames, np.ones((size, audio_tokens(span, self.piece)), np.bool_)

    def _windows(self, shape: tuple[int, int], frames: Tensor, real: Tensor) -> tuple[Tensor]:
        """Return the rows of windows [windows, frames, mels]; ``real`` [windows, rows] marks the ones without
        padding.
        """
        x = self._convolved(frames.unflatten(1, (shape[1], self.piece)).flatten(0, 1).transpose(1, 2)[:, None])
        x = (x + self.times[: x.shape[1]].to(x.dtype)).flatten(0, 1)
        for layer in self.layers:
            x = layer(x, real)
        return (self.out(self.activate(self.up(self.norm(x)))),)

    def _convolved(self, x: Tensor) -> Tensor:
        """Convert pieces [pieces, 1, mels, frames] to rows [pieces, rows, width], in batches of limited size."""
        found: list[Tensor] = []
        for part in x.split(self.batch):
            for weight, bias in self.convolutions:
                part = F.gelu(F.conv2d(part, weight, bias, stride=2, padding=1))
            found.append(part)
        return self.enter(torch.cat(found).permute(0, 3, 1, 2).flatten(2))


class Qwen3OmniVisionEncoder:
    """Encodes patches with attention within each picture. Some layers also give the deepstack rows for the thinker's
    layers.
    """

    def __init__(self, read: WeightReader, config: Any) -> None:
        width = config.hidden_size
        self.merge = config.spatial_merge_size
        self.side = int(config.num_position_embeddings**0.5)
        self.table = read("pos_embed.weight", config.num_position_embeddings, width)
        patch = config.in_channels, config.temporal_patch_size, config.patch_size, config.patch_size
        self.enter = read("patch_embed.proj.weight", width, *patch), read("patch_embed.proj.bias", width)
        self.rope = encoder.PlaneRope(
            width // config.num_heads, config.rope_parameters["rope_theta"], self.merge, read.device
        )
        self.layers = [_Layer(read.below(f"blocks.{i}"), config) for i in range(config.depth)]
        cell, out = width * self.merge**2, config.out_hidden_size
        norm = LayerNorm(read.below("merger.ln_q"), width, NORM_EPS)
        self.last = Merger(read.below("merger"), norm, cell, out)
        self.taps = {
            layer: Merger(read.below(f"merger_list.{i}"), self._late(read, i, cell), cell, out, late=True)
            for i, layer in enumerate(config.deepstack_visual_indexes)
        }

    def _late(self, read: WeightReader, number: int, cell: int) -> LayerNorm:
        return LayerNorm(read.below(f"merger_list.{number}.ln_q"), cell, NORM_EPS)

    def __call__(self, pixels: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """Return the rows [cells, width] of pictures, and the rows of each deepstack layer.

        ``pixels`` [patches, values] are the concatenated patches of the pictures.
        """
        x = F.linear(pixels, self.enter[0].flatten(1), self.enter[1])
        x = x + torch.cat([self._placed(grid) for grid in grids]).to(x.dtype)
        angles, counts = self.rope(grids), [high * wide for high, wide in grids]
        tapped: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            x = layer(x, angles, counts)
            if number in self.taps:
                tapped.append(self.taps[number](x))
        return [self.last(x), *tapped]

    def _placed(self, grid: Grid) -> Tensor:
        """Return a picture's position embeddings, interpolated bilinearly from the table."""
        taps: list[Tensor] = []
        shares: list[Tensor] = []
        for at, size in zip(encoder.patch_positions(grid, self.merge), grid, strict=True):
            where = at.float() * (self.side - 1) / max(1, size - 1)
            low = where.floor()
            taps.append(torch.stack((low, low + 1), 1).clamp(max=self.side - 1).long())
            shares.append(1 - (where[:, None] - low[:, None] - torch.arange(2)).abs())
        indices = (taps[0][:, :, None] * self.side + taps[1][:, None]).flatten(1)
        weights = (shares[0][:, :, None] * shares[1][:, None]).flatten(1)
        device = self.table.device
        return (self.table[to_device(indices.numpy(), device)] * to_device(weights.numpy(), device)[..., None]).sum(1)


class _Layer:
    """Attention and feed-forward network with pre-norm."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        width = config.hidden_size
        inner = config.intermediate_size
        self.heads = config.num_heads
        self.before, self.between = (LayerNorm(read.below(f"norm{i}"), width, NORM_EPS) for i in (1, 2))
        self.qkv = Linear(read.below("attn.qkv"), width, 3 * width)
        self.out = Linear(read.below("attn.proj"), width, width)
        self.activate = encoder.activation(config.hidden_act)
        self.up = Linear(read.below("mlp.linear_fc1"), width, inner)
        self.down = Linear(read.below("mlp.linear_fc2"), inner, width)

    def __call__(self, x: Tensor, angles: tuple[Tensor, Tensor], counts: Sequence[int]) -> Tensor:
        query, key, value = self.qkv(self.before(x)).view(len(x), 3, self.heads, -1).unbind(1)
        mixed = encoder.attend(encoder.turned(query, angles), encoder.turned(key, angles), value, counts)
        x = x + self.out(mixed)
        return x + self.down(self.activate(self.up(self.between(x))))
