"""Tensor names of Moshi checkpoints: Kyutai's and transformers' under the names that the networks read.

The networks read ``temporal.`` (with the layers of ``TransformerDecoder``), ``text_embedding``, ``text_head``,
``embeddings.N`` and, for each codebook of the depth transformer, ``depth.N.``. The codec has the names of
transformers' Mimi. Sources: the modules of moshi 0.2 and of NVIDIA's personaplex, and transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.models.moshi.sizes import MoshiSizes
from engine.worker.nn.memory import META
from engine.worker.nn.weights import SafetensorsFiles

Part = Callable[[Tensor], Tensor]
HALVES = ("gate_proj", "up_proj")
QUANTIZERS = {"semantic_residual_vector_quantizer": "rvq_first", "acoustic_residual_vector_quantizer": "rvq_rest"}
CODEBOOK = {"cluster_usage": "cluster_usage", "embed_sum": "embedding_sum"}
LAYER = {
    "input_layernorm": "norm1",
    "post_attention_layernorm": "norm2",
    "self_attn_layer_scale": "layer_scale_1",
    "mlp_layer_scale": "layer_scale_2",
}


@dataclass(frozen=True, slots=True)
class TensorSource:
    """Where a tensor is: a tensor of the file, and the part of it."""

    name: str
    part: Part | None = None


Rename = Callable[[str], tuple[TensorSource, ...]]
"""Returns the sources that a tensor may have; the first one in the file counts. Empty for an unknown name."""


class RenamedFiles(SafetensorsFiles):
    """A safetensors file whose tensors are read under other names.

    On the ``device`` meta, where memory is only planned, no weights are read.
    """

    def __init__(self, folder: Path, rename: Rename, whole: str, device: torch.device) -> None:
        self._rename = rename
        self._device = device
        super().__init__(folder, whole)

    def __contains__(self, name: str) -> bool:
        return any(super(RenamedFiles, self).__contains__(source.name) for source in self._rename(name))

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        sources = self._rename(name)
        source = next((one for one in sources if super(RenamedFiles, self).__contains__(one.name)), sources[0])
        if source.part is None:
            return super().tensor(source.name, shape)
        whole = super().tensor(source.name)
        whole = whole.to(self._device) if self._device.type == META else whole
        try:
            found = source.part(whole)
        except (RuntimeError, IndexError):
            found = whole[:0]
        if shape is not None and tuple(found.shape) != tuple(shape):
            raise WeightsError(
                f"{self.folder}: {source.name} has the shape {list(whole.shape)}, which does not fit config.json."
            )
        return found


class KyutaiNames:
    """Names of the language model in the repositories of Kyutai and of NVIDIA (PersonaPlex)."""

    def __init__(self, sizes: MoshiSizes) -> None:
        self._sizes = sizes

    def __call__(self, name: str) -> tuple[TensorSource, ...]:
        sizes = self._sizes
        match name.split("."):
            case ["text_embedding", "weight"]:
                return (TensorSource("text_emb.weight"),)
            case ["text_head", "weight"]:
                return (TensorSource("text_linear.weight"),)
            case ["embeddings", book, "weight"]:
                return (TensorSource(f"emb.{book}.weight"),)
            case ["temporal", "norm", "weight"]:
                return (TensorSource("out_norm.alpha", Tensor.flatten),)
            case ["temporal", "layers", layer, *rest]:
                return _kyutai_layer(f"transformer.layers.{layer}", rest, sizes.temporal, None)
            case ["depth", "0", "embedding", "weight"]:
                return (TensorSource("depformer_text_emb.weight"),)
            case ["depth", book, "embedding", "weight"]:
                return (TensorSource(f"depformer_emb.{int(book) - 1}.weight"),)
            case ["depth", book, "head", "weight"]:
                return (TensorSource(f"linears.{book}.weight"),)
            case ["depth", book, "input", "weight"]:
                return (TensorSource(f"depformer_in.{sizes.depth_weights[int(book)]}.weight"),)
            case ["depth", book, "layers", layer, *rest]:
                return _kyutai_layer(f"depformer.layers.{layer}", rest, sizes.depth, sizes.depth_weights[int(book)])
            case _:
                return ()


def _kyutai_layer(layer: str, rest: Sequence[str], stack: Any, step: int | None) -> tuple[TensorSource, ...]:
    """Find a tensor of a layer; ``step`` is the index of its weights in a depth transformer."""
    gating = f"{layer}.gating" if step is None else f"{layer}.gating.{step}"
    heads = _Heads.of(stack)
    match rest:
        case ["input_layernorm" | "post_attention_layernorm" as norm, "weight"]:
            return (TensorSource(f"{layer}.{LAYER[norm]}.alpha", Tensor.flatten),)
        case ["self_attn", "o_proj", "weight"]:
            out = TensorSource(f"{layer}.self_attn.out_proj.weight", _step(stack.hidden_size, step))
            return (out, TensorSource(f"{layer}.self_attn.out_projs.{step or 0}.weight"))
        case ["self_attn", "q_proj" | "k_proj" | "v_proj" as projection, "weight"]:
            part = heads.part(projection, turned=step is None)
            own = _step(sum(heads.sizes), step)
            joined = TensorSource(f"{layer}.self_attn.in_proj_weight", lambda whole: part(own(whole)))
            return (joined, TensorSource(f"{layer}.self_attn.in_projs.{step or 0}.weight", part))
        case ["mlp", "gate_proj" | "up_proj" as half, "weight"]:
            return (TensorSource(f"{gating}.linear_in.weight", lambda whole: whole.chunk(2)[HALVES.index(half)]),)
        case ["mlp", "down_proj", "weight"]:
            return (TensorSource(f"{gating}.linear_out.weight"),)
        case _:
            return ()


def _step(rows: int, step: int | None) -> Part:
    """Return one of several matrices that a tensor has one below the other."""
    return lambda whole: whole if step is None else whole.view(-1, rows, whole.shape[1])[step]


@dataclass(frozen=True, slots=True)
class _Heads:
    """A matrix of queries, keys and values, one below the other."""

    sizes: tuple[int, int, int]
    dim: int

    @classmethod
    def of(cls, stack: Any) -> _Heads:
        dim = stack.hidden_size // stack.num_attention_heads
        keys = stack.num_key_value_heads * dim
        return cls((stack.hidden_size, keys, keys), dim)

    def part(self, projection: str, turned: bool) -> Part:
        """Return one of the three.

        If ``turned``, rotary embeddings pair neighbouring channels of queries and keys. Their rows are then reordered,
        so that a channel pairs with the one half a head later.
        """
        index = "qkv".index(projection[0])

        def of(whole: Tensor) -> Tensor:
            own = whole.split(self.sizes)[index]
            if not turned or index == 2:
                return own
            return own.view(-1, self.dim // 2, 2, own.shape[1]).transpose(1, 2).reshape(own.shape)

        return of


class KyutaiMimiNames:
    """Names of the codec's own file in Kyutai's and NVIDIA's repositories."""

    def __init__(self, sizes: Any) -> None:
        self._sizes = sizes

    def __call__(self, name: str) -> tuple[TensorSource, ...]:
        match name.split("."):
            case ["encoder" | "decoder" as side, "layers", layer, "conv", kind]:
                whole = f"{side}.model.{layer}"
                return (TensorSource(f"{whole}.conv.conv.{kind}"), TensorSource(f"{whole}.convtr.convtr.{kind}"))
            case ["encoder" | "decoder" as side, "layers", layer, "block", index, "conv", kind]:
                return (TensorSource(f"{side}.model.{layer}.block.{index}.conv.conv.{kind}"),)
            case ["downsample", "conv", "weight"]:
                return (TensorSource("downsample.conv.conv.conv.weight"),)
            case ["upsample", "conv", "weight"]:
                return (TensorSource("upsample.convtr.convtr.convtr.weight"),)
            case ["quantizer", books, "input_proj" | "output_proj" as projection, "weight"]:
                return (TensorSource(f"quantizer.{QUANTIZERS[books]}.{projection}.weight"),)
            case ["quantizer", books, "layers", book, "codebook", kind]:
                codebook = f"quantizer.{QUANTIZERS[books]}.vq.layers.{book}._codebook"
                return (TensorSource(f"{codebook}.{CODEBOOK[kind]}"),)
            case ["encoder_transformer" | "decoder_transformer" as stack, "layers", layer, *rest]:
                return self._layer(f"{stack}.transformer.layers.{layer}", rest)
            case _:
                return ()

    def _layer(self, layer: str, rest: Sequence[str]) -> tuple[TensorSource, ...]:
        match rest:
            case ["self_attn", "o_proj", "weight"]:
                return _either(f"{layer}.self_attn", "out_proj.weight", "out_projs.0.weight")
            case ["self_attn", "q_proj" | "k_proj" | "v_proj" as projection, "weight"]:
                part = _Heads.of(self._sizes).part(projection, turned=True)
                return _either(f"{layer}.self_attn", "in_proj_weight", "in_projs.0.weight", part)
            case ["mlp", "fc1" | "fc2" as number, "weight"]:
                return (TensorSource(f"{layer}.linear{number[-1]}.weight"),)
            case [one, "weight" | "bias" | "scale" as kind] if one in LAYER:
                return (TensorSource(f"{layer}.{LAYER[one]}.{kind}"),)
            case _:
                return ()


def _either(prefix: str, first: str, second: str, part: Part | None = None) -> tuple[TensorSource, ...]:
    return (TensorSource(f"{prefix}.{first}", part), TensorSource(f"{prefix}.{second}", part))


def transformers_names(name: str) -> tuple[TensorSource, ...]:
    """Return the source of a language model's tensor in a checkpoint of MoshiForConditionalGeneration."""
    match name.split("."):
        case ["text_embedding", "weight"]:
            return (TensorSource("decoder.model.embed_tokens.weight"),)
        case ["text_head", "weight"]:
            return (TensorSource("decoder.lm_head.weight"),)
        case ["embeddings", book, "weight"]:
            return (TensorSource(f"embed_tokens.{book}.weight"),)
        case ["temporal", "norm", "weight"]:
            return (TensorSource("decoder.model.norm.weight"),)
        case ["temporal", "layers", layer, *rest]:
            return _transformers_layer(f"decoder.model.layers.{layer}", rest, None)
        case ["depth", "0", "embedding", "weight"]:
            return (TensorSource("depth_decoder.text_embed_tokens.weight"),)
        case ["depth", book, "embedding", "weight"]:
            return (TensorSource(f"depth_decoder.embed_tokens.{int(book) - 1}.weight"),)
        case ["depth", book, "head", "weight"]:
            return (TensorSource("depth_decoder.lm_heads.weight", _one(int(book))),)
        case ["depth", book, "input", "weight"]:
            return (TensorSource("depth_decoder.input_projections.weight", _one(int(book))),)
        case ["depth", book, "layers", layer, *rest]:
            return _transformers_layer(f"depth_decoder.layers.{layer}", rest, int(book))
        case _:
            return ()


def _transformers_layer(layer: str, rest: Sequence[str], step: int | None) -> tuple[TensorSource, ...]:
    own = _one(step)
    match rest:
        case ["input_layernorm" | "post_attention_layernorm" as norm, "weight"]:
            return (TensorSource(f"{layer}.{norm}.weight"),)
        case ["self_attn", "q_proj" | "k_proj" | "v_proj" | "o_proj" as projection, "weight"]:
            return (TensorSource(f"{layer}.self_attn.{projection}.linear.weight", own),)
        case ["mlp", "gate_proj" | "up_proj" as half, "weight"]:
            return (TensorSource(f"{layer}.mlp.fc1.weight", lambda whole: own(whole).chunk(2)[HALVES.index(half)]),)
        case ["mlp", "down_proj", "weight"]:
            return (TensorSource(f"{layer}.mlp.fc2.weight", own),)
        case _:
            return ()


def _one(step: int | None) -> Part:
    """Return the matrix of a codebook from those of all."""
    return lambda whole: whole if step is None else whole[step]
