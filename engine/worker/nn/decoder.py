"""A stack of Qwen decoder layers over slots of a preallocated KV cache.

Positions are explicit and state is per slot, so a batch may mix requests at different positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.worker.nn.device import to_device
from engine.worker.nn.kernel_loading import Kernels
from engine.worker.nn.moe import Gate, moe, route, swiglu
from engine.worker.nn.quantized import Weight, linear
from engine.worker.nn.rope import Rope, rotate
from engine.worker.nn.slots import (
    Batch,
    CachePositions,
    DecodeSlots,
    InPlace,
    KvSlots,
    OneRow,
    PiecesInPlace,
    SlotsInPlace,
    VarlenBatch,
    Where,
)
from engine.worker.nn.weights import WeightReader


class TransformerDecoder:
    """Layers of grouped-query attention and a feed-forward network, dense or mixture-of-experts.

    By default, query and key heads are normalized and have no bias, and M-RoPE is interleaved. ``config`` may change
    this with ``head_norms``, ``qkv_bias``, and ``mrope_interleaved`` in its ``rope_parameters``.
    """

    def __init__(self, read: WeightReader, config: Any) -> None:
        rope = config.rope_parameters
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.config = config
        self.device = read.device
        self.dtype = read.dtype
        self.kernels = read.kernels
        interleaved = rope.get("mrope_interleaved", True)
        self.rope = Rope(self.head_dim, rope["rope_theta"], read.device, rope.get("mrope_section"), interleaved)
        self.layers = [
            DecoderLayer(read.below(f"layers.{i}"), config, self.head_dim, is_sparse(config, i))
            for i in range(config.num_hidden_layers)
        ]
        self.norm = read("norm.weight", config.hidden_size)

    def cache(self, slots: int, length: int, positions: int | None = None) -> KvSlots:
        """Create a KV cache. Its slots share ``positions``, or have ``length`` positions each."""
        heads = self.config.num_key_value_heads
        return KvSlots(len(self.layers), slots, heads, length, self.head_dim, self.device, self.dtype, positions)

    def one_row(self, cache: KvSlots, slots: Tensor, starts: Tensor, length: int) -> OneRow:
        """Return the cache positions of a decode step. ``starts`` are on the device; all are below ``length``."""
        if self.kernels is not None:
            return SlotsInPlace.of(cache, slots, starts, self.kernels)
        return DecodeSlots.of(cache, slots, starts, length)

    def append(
        self, batch: Batch, cache: KvSlots, tap: int = -1, added: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor]:
        """Run ``forward`` for a batch of concatenated pieces.

        Returns hidden rows and tapped rows [all rows, width]. ``added`` are concatenated in the same way.
        """
        counts, positions = batch.counts, np.concatenate(batch.positions, 1)
        if self.kernels is not None:
            pieces = PiecesInPlace.of(cache, batch.slots, batch.starts, counts, self.kernels)
            angles = self.angles(to_device(positions, self.device)[:, None])
            return self.fused(torch.cat(batch.embeddings)[None], angles, pieces, cache, tap, added)
        if min(counts) == max(counts):
            shape, where = (len(batch), counts[0]), CachePositions.of(cache, batch.slots, batch.starts, counts[0])
        else:
            shape, where = (1, sum(counts)), VarlenBatch(cache, batch.slots, batch.starts, counts)
        angles = self.angles(to_device(positions, self.device).view(len(positions), *shape))
        x = torch.cat(batch.embeddings).view(*shape, -1)
        hidden, tapped = self.forward(x, angles, where, cache, tap, [one.view(*shape, -1) for one in added])
        return hidden.flatten(0, 1), tapped.flatten(0, 1)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of rope positions [axes, batch, rows], or [batch, rows]."""
        return self.rope(positions, self.dtype)

    def forward(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        where: Where,
        cache: KvSlots,
        tap: int = -1,
        added: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor]:
        """Compute the stack.

        Args:
            x: Input rows [batch, rows, width].
            angles: Cosine and sine of their positions, from ``rope``.
            where: Cache positions of the rows.
            cache: The KV cache.
            tap: Layer whose output is returned as well, counted from 1; 0 is ``x``.
            added: ``added[i]`` is added to layer i's output (deepstack: Meng et al. 2024), after the tap.

        Returns:
            Hidden rows after the last norm, and the output of layer ``tap``.
        """
        cos, sin = angles
        tapped = x
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, cos, sin, where, cache.keys[i], cache.values[i])
            if i + 1 == tap:
                tapped = x
            if i < len(added):
                x = x + added[i]
        return rms_norm(x, self.norm, self.config.rms_norm_eps), tapped

    def step(self, x: Tensor, angles: tuple[Tensor, Tensor], where: CachePositions | OneRow, cache: KvSlots) -> Tensor:
        """Return the hidden rows of a decode step. Kernels fuse all operations between two matrix products into one
        launch.
        """
        if isinstance(where, DecodeSlots) or (self.kernels is None and isinstance(where, CachePositions)):
            return self.forward(x, angles, where, cache)[0]
        return self.fused(x, angles, where, cache)[0].view_as(x)

    def fused(
        self,
        x: Tensor,
        angles: tuple[Tensor, Tensor],
        where: InPlace,
        cache: KvSlots,
        tap: int = -1,
        added: Sequence[Tensor] = (),
    ) -> tuple[Tensor, Tensor]:
        """Compute ``forward`` with kernels, on and to rows [batch · rows, width]; ``added`` have that shape too."""
        assert self.kernels is not None
        kernels, eps, shape = self.kernels, self.config.rms_norm_eps, x.shape
        x = tapped = x.reshape(-1, shape[-1])
        normed = rms_norm(x, self.layers[0].before, eps)
        behind = [*(layer.before for layer in self.layers[1:]), self.norm]
        for i, (layer, after) in enumerate(zip(self.layers, behind, strict=True)):
            mixed = layer.attend(normed.view(shape), angles, where, cache.keys[i], cache.values[i], kernels)
            x, normed = kernels.add_norm(x, mixed.view_as(x), layer.between, eps)
            x, normed = kernels.add_norm(x, layer.feed(normed, kernels), after, eps)
            if i + 1 == tap:
                tapped = x
            if i < len(added):
                x = x + added[i]
                normed = rms_norm(x, after, eps)
        return normed, tapped


class DecoderLayer:
    """One decoder layer; projections of the same input are one matrix product."""

    def __init__(self, read: WeightReader, config: Any, head_dim: int, sparse: bool) -> None:
        width = config.hidden_size
        self.dim = head_dim
        self.eps = config.rms_norm_eps
        self.heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
        attention, names = read.below("self_attn"), ("q_proj", "k_proj", "v_proj")
        sizes = [n * head_dim for n in self.heads]
        self.qkv = attention.linear(names, sizes, width)
        biased = getattr(config, "attention_bias", False)
        has_bias = biased or getattr(config, "qkv_bias", False)
        self.qkv_bias = attention.joined([f"{name}.bias" for name in names], sizes) if has_bias else None
        self.out = attention.linear(("o_proj",), (width,), sizes[0])
        self.out_bias = attention("o_proj.bias", width) if biased else None
        self.query_norm = self.key_norm = None
        if getattr(config, "head_norms", True):
            self.query_norm, self.key_norm = (attention(f"{name}_norm.weight", head_dim) for name in "qk")
        self.before = read("input_layernorm.weight", width)
        self.between = read("post_attention_layernorm.weight", width)
        self.feed = (Experts if sparse else Dense)(read.below("mlp"), config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, where: Where, keys: Tensor, values: Tensor) -> Tensor:
        x = x + self._attend(rms_norm(x, self.before, self.eps), cos, sin, where, keys, values)
        return x + self.feed(rms_norm(x, self.between, self.eps))

    def _attend(self, x: Tensor, cos: Tensor, sin: Tensor, where: Where, keys: Tensor, values: Tensor) -> Tensor:
        batch, count, _ = x.shape
        query, key, value = self._heads(x).transpose(1, 2).split(self.heads, 1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = rms_norm(query, self.query_norm, self.eps), rms_norm(key, self.key_norm, self.eps)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = where.mix(query, key, value, keys, values)
        return linear(mixed.transpose(1, 2).reshape(batch, count, -1), self.out, self.out_bias)

    def attend(
        self, x: Tensor, angles: tuple[Tensor, Tensor], where: InPlace, keys: Tensor, values: Tensor, kernels: Kernels
    ) -> Tensor:
        """Return the attention output for normalized rows [batch, rows, width], with kernels."""
        norms = None if self.query_norm is None or self.key_norm is None else (self.query_norm, self.key_norm)
        query = kernels.place(self._heads(x), norms, self.eps, angles, where.at, keys, values)
        mixed = where.look(query, keys, values).transpose(1, 2)
        return linear(mixed.reshape(*x.shape[:2], -1), self.out, self.out_bias)

    def _heads(self, x: Tensor) -> Tensor:
        """Return queries, keys and values [batch, rows, all heads, dim]."""
        return linear(x, self.qkv, self.qkv_bias).unflatten(-1, (sum(self.heads), self.dim))


class Dense:
    """Gated feed-forward network."""

    def __init__(self, read: WeightReader, config: Any, inner: int | None = None) -> None:
        width: int = config.hidden_size
        inner = inner or int(config.intermediate_size)
        self.gate_up = read.linear(("gate_proj", "up_proj"), (inner, inner), width)
        self.down = read.linear(("down_proj",), (width,), inner)

    def __call__(self, x: Tensor, kernels: Kernels | None = None) -> Tensor:
        gated = swiglu if kernels is None else kernels.swiglu
        return linear(gated(linear(x, self.gate_up)), self.down)


class Experts:
    """Mixture of experts, with a shared expert if the config has its size."""

    def __init__(self, read: WeightReader, config: Any) -> None:
        width, inner, count = config.hidden_size, config.moe_intermediate_size, config.num_experts
        self.kernels = read.kernels
        self.top_k = config.num_experts_per_tok
        self.normalise = config.norm_topk_prob
        self.router = read("gate.weight", count, width)
        if "experts.gate_up_proj" in read:
            self.gate_up: Weight = read("experts.gate_up_proj", count, 2 * inner, width)
            self.down: Weight = read("experts.down_proj", count, width, inner)
        else:
            layers = [f"experts.{n}." for n in range(count)]
            self.gate_up = read.linears(layers, ("gate_proj", "up_proj"), (inner, inner), width)
            self.down = read.linears(layers, ("down_proj",), (width,), inner)
        shared = getattr(config, "shared_expert_intermediate_size", 0)
        self.shared = Dense(read.below("shared_expert"), config, shared) if shared else None
        self.shared_gate = read("shared_expert_gate.weight", 1, width) if shared else None

    def __call__(self, x: Tensor, kernels: Kernels | None = None) -> Tensor:
        """Compute the layer. With ``kernels``, Triton kernels also do the routing and gating."""
        tokens = x.reshape(-1, x.shape[-1])
        if kernels is None:
            experts, shares = route(tokens, self.router, self.top_k, self.normalise)
        else:
            experts, shares = kernels.route(F.linear(tokens, self.router), self.top_k, self.normalise)
        answer = self._asked(tokens, experts, shares, swiglu if kernels is None else kernels.swiglu)
        if self.shared is not None and self.shared_gate is not None:
            answer = answer + F.linear(tokens, self.shared_gate).sigmoid() * self.shared(tokens, kernels)
        return answer.view_as(x)

    def _asked(self, tokens: Tensor, experts: Tensor, shares: Tensor, gated: Gate) -> Tensor:
        kernels, gate_up, down = self.kernels, self.gate_up, self.down
        if kernels is not None and kernels.takes(gate_up) and kernels.takes(down):
            return kernels.experts(tokens, experts, shares, gate_up, down)
        return moe(tokens, experts, shares, gate_up, down, gated)


def is_sparse(config: Any, layer: int) -> bool:
    """Return whether a layer has experts (checkpoint fields mlp_only_layers and decoder_sparse_step)."""
    if not getattr(config, "num_experts", 0) or layer in (getattr(config, "mlp_only_layers", None) or ()):
        return False
    return (layer + 1) % (getattr(config, "decoder_sparse_step", None) or 1) == 0


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, with the mean in float32 (as in the reference).

    On a GPU it is one kernel, which rounds once where the reference rounds twice.
    """
    if x.dtype == torch.float32 or x.device.type != "cpu":
        return F.rms_norm(x, weight.shape, weight, eps)
    return weight * F.rms_norm(x.float(), weight.shape, None, eps).to(x.dtype)
