"""The thinker's network: a small decoder, and its export to ONNX.

Pre-norm layers with rotary grouped-query attention and SwiGLU (LLaMA, arXiv:2302.13971). A causal depthwise
convolution over queries, keys and values lets one layer compare "what came before this" with "what came before
that one": copying, which repeating and spelling are made of, is then learned within the first thousand steps (the same
idea as in Primer, arXiv:2109.08668, and in "Canon layers").

It knows nothing of dialogues, templates or optimizers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional as F

from engine.worker.models.nano.tokens import CONTEXT, VOCABULARY


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the network. ``taps`` is the convolution's width in positions."""

    width: int = 192
    layers: int = 5
    heads: int = 6
    kv_heads: int = 3
    hidden: int = 448
    taps: int = 4
    vocabulary: int = VOCABULARY
    context: int = CONTEXT

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def kv(self) -> int:
        """Length of one position's keys (or values) in one layer."""
        return self.kv_heads * self.head

    @property
    def mixed(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return self.width + 2 * self.kv


class Thinker(nn.Module):
    """Tokens in, logits of the next token out.

    The state of B conversations is ``keys`` [B, layers, kv_heads, head, past] and ``values`` [B, layers, kv_heads,
    past, head] float32, of which the first ``lengths`` [B] int64 positions are valid, and ``tails`` [B, layers,
    taps - 1, mixed], what the convolutions remember. There is at least one past position, valid or not.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.embed.weight, std=0.3)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        nn.init.zeros_(self.head.weight)
        speeds = 10000.0 ** -(torch.arange(0, shape.head, 2) / shape.head)
        angles = torch.outer(torch.arange(shape.context).float(), speeds)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def train_logits(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Logits [n, vocabulary] at the n ``wanted`` [B, T] positions of whole sequences ``ids`` [B, T], no state."""
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x = self.embed(ids)
        for layer in self.layers:
            x = cast(Layer, layer).whole(x, cos, sin)
        return self.head(self.norm(x[wanted]))

    def forward(
        self, ids: Tensor, keys: Tensor, values: Tensor, tails: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Advance by ``ids`` [B, n] int64.

        Returns the logits after the last id [B, vocabulary], the new keys and values, shaped like those before, and the
        new tails.
        """
        positions = lengths[:, None] + torch.arange(ids.shape[1])
        angles = self.cos[positions][:, None], self.sin[positions][:, None]
        bias = _bias(lengths, keys.shape[-1], ids.shape[1], self.shape.heads // self.shape.kv_heads)
        x = self.embed(ids)
        made: list[tuple[Tensor, Tensor, Tensor]] = []
        for i, layer in enumerate(self.layers):
            x, state = cast(Layer, layer).step(x, angles, bias, (keys[:, i], values[:, i], tails[:, i]))
            made.append(state)
        k, v, t = (torch.stack(parts, 1) for parts in zip(*made, strict=True))
        return self.head(self.norm(x[:, -1])), k, v, t


def _bias(lengths: Tensor, past: int, count: int, group: int) -> Tensor:
    """What keeps ``count`` queries, of each head of a group, from what they may not see [B, 1, group · count, all]."""
    new = torch.arange(count)
    known = (torch.arange(past) < lengths[:, None])[:, None, None].expand(-1, 1, group * count, -1)
    causal = (new[None, :] <= new[:, None]).repeat(group, 1)[None, None].expand(lengths.shape[0], -1, -1, -1)
    return torch.where(torch.cat((known, causal), -1), 0.0, -1e9)


class Norm(nn.Module):
    """RMS norm, in operations that every exporter knows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    """Attention, then SwiGLU, each on a normed input and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.norm1 = Norm(shape.width)
        self.norm2 = Norm(shape.width)
        self.mix = nn.Linear(shape.width, shape.mixed, bias=False)
        self.taps = nn.Parameter(torch.zeros(shape.taps, shape.mixed))
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)
        with torch.no_grad():
            self.taps[-1] = 1.0  # starts as the identity
            self.taps[:-1].normal_(std=0.2)
            self.out.weight.zero_()
            self.down.weight.zero_()

    def whole(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Sequences [B, T, width] from their first position."""
        mixed = self.mix(self.norm1(x))
        padded = F.pad(mixed, (0, 0, self.shape.taps - 1, 0))
        q, k, v = self._heads(self._convolve(padded, x.shape[1]), cos[None], sin[None])
        seen = F.scaled_dot_product_attention(
            q.transpose(1, 2), self._spread(k).transpose(1, 2), self._spread(v).transpose(1, 2), is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self._feed(x)

    def step(
        self, x: Tensor, angles: tuple[Tensor, Tensor], bias: Tensor, state: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """A few further positions [B, n, width] behind the given keys, values and tail of this layer.

        What is behind them is read where it lies: copying it, once joined with the new and once for each head that
        shares it, took longer than the products.
        """
        shape, (keys, values, tail) = self.shape, state
        batch, count = x.shape[:2]
        padded = torch.cat((tail, self.mix(self.norm1(x))), 1)
        mixed = self._convolve(padded, count)
        turned = mixed[:, :, : shape.width + shape.kv].reshape(batch, count, -1, shape.head).transpose(1, 2)
        turned = _rotate(turned, *angles)
        q = turned[:, : shape.heads].reshape(batch, shape.kv_heads, -1, shape.head) * shape.head**-0.5
        k = turned[:, shape.heads :].transpose(2, 3)
        v = mixed[:, :, shape.width + shape.kv :].reshape(batch, count, -1, shape.head).transpose(1, 2)
        weights = torch.softmax(torch.cat((q @ keys, q @ k), -1) + bias, -1)
        past = keys.shape[-1]
        seen = weights[..., :past] @ values + weights[..., past:] @ v
        seen = seen.reshape(batch, shape.heads, count, shape.head).transpose(1, 2).reshape(batch, count, shape.width)
        x = x + self.out(seen)
        return x + self._feed(x), (k, v, padded[:, -(shape.taps - 1) :])

    def _convolve(self, padded: Tensor, count: int) -> Tensor:
        first, *rest = (padded[:, i : i + count] * self.taps[i] for i in range(self.shape.taps))
        for term in rest:
            first = first + term
        return first

    def _heads(self, mixed: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, n, heads, head], keys and values [B, n, kv_heads, head], the former two rotated."""
        shape = self.shape
        q, k, v = mixed.split((shape.width, shape.kv, shape.kv), -1)
        cos, sin = cos[:, :, None], sin[:, :, None]
        q = _rotate(q.unflatten(2, (shape.heads, shape.head)), cos, sin)
        k = _rotate(k.unflatten(2, (shape.kv_heads, shape.head)), cos, sin)
        return q, k, v.unflatten(2, (shape.kv_heads, shape.head))

    def _spread(self, x: Tensor) -> Tensor:
        """[B, n, kv_heads, head] to [B, n, heads, head]: the queries' heads share keys and values."""
        return x.repeat_interleave(self.shape.heads // self.shape.kv_heads, 2)

    def _feed(self, x: Tensor) -> Tensor:
        gate, up = self.gate(self.norm2(x)).chunk(2, -1)
        return self.down(F.silu(gate) * up)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def empty_state(shape: Shape, batch: int = 1, past: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys, values, tails and lengths of ``batch`` conversations that have not begun."""
    keys = torch.zeros(batch, shape.layers, shape.kv_heads, shape.head, past)
    tails = torch.zeros(batch, shape.layers, shape.taps - 1, shape.mixed)
    return keys, keys.transpose(3, 4).clone(), tails, torch.zeros(batch, dtype=torch.int64)


def export(model: Thinker, path: Path) -> None:
    """Write ``forward`` as ONNX: dynamic batch, ids and past; weights stored in fp16 and cast once at load."""
    shape = model.shape
    example = (torch.zeros(2, 3, dtype=torch.int64), *empty_state(shape, 2, 5))
    names = ["ids", "keys", "values", "tails", "lengths"]
    axes = {"ids": {0: "b", 1: "n"}, "keys": {0: "b", 4: "past"}, "values": {0: "b", 3: "past"}}
    axes |= {"tails": {0: "b"}, "lengths": {0: "b"}, "logits": {0: "b"}, "new_tails": {0: "b"}}
    axes |= {"new_keys": {0: "b", 4: "n"}, "new_values": {0: "b", 3: "n"}}
    torch.onnx.export(
        model.eval(), example, str(path), input_names=names, dynamic_axes=axes, opset_version=18, dynamo=False,
        output_names=["logits", "new_keys", "new_values", "new_tails"], do_constant_folding=False,
    )  # fmt: skip
    graph = onnx.load(path)
    for key, value in asdict(shape).items():
        graph.metadata_props.append(onnx.StringStringEntryProto(key=key, value=str(value)))
    halve_weights(graph)
    onnx.save(graph, path)


def halve_weights(graph: onnx.ModelProto) -> None:
    """Store every large float32 initializer as fp16 behind a Cast, which ONNX Runtime folds when it loads."""
    for old in [t for t in graph.graph.initializer if t.data_type == TensorProto.FLOAT]:
        array = numpy_helper.to_array(old)
        if array.size < 1024:
            continue
        name = old.name
        old.CopyFrom(numpy_helper.from_array(array.astype("float16"), f"{name}.half"))
        graph.graph.node.insert(0, helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
