"""Make tiny random checkpoints of Moshi's exact architecture, in transformers' format and in Kyutai's.

Weights are scaled by fan-in, so that tokens vary. ``python -m tests.oracles.tiny_moshi DIR`` makes one.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import MoshiConfig, MoshiForConditionalGeneration

from tests.oracles.tiny_qwen3_tts import _weights

LETTERS = "\u2581abcdefghijklmnopqrstuvwxyz<>."
WORDS = ("<unk>", "<s>", "</s>", "<pad>", *(f"\u2581word{i}" for i in range(30)), *LETTERS)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What differs between the checkpoints that tests run on."""

    books: int = 4
    codes: int = 64
    width: int = 64
    heads: int = 4
    kv_heads: int = 4
    layers: int = 2
    window: int = 3000
    depth_width: int = 48
    depth_heads: int = 2
    depth_layers: int = 2
    codec_width: int = 32
    codec_window: int = 250
    codec_books: int = 8
    theta: float = 10_000.0
    seed: int = 0


def configuration(sizes: Sizes) -> MoshiConfig:
    codec = {
        "model_type": "mimi", "hidden_size": sizes.codec_width, "num_filters": 4, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64, "codebook_size": sizes.codes,
        "codebook_dim": 16, "vector_quantization_hidden_dimension": 16, "num_quantizers": sizes.codec_books,
        "upsample_groups": sizes.codec_width, "sliding_window": sizes.codec_window,
    }  # fmt: skip
    depth = {
        "hidden_size": sizes.depth_width, "num_hidden_layers": sizes.depth_layers,
        "num_attention_heads": sizes.depth_heads, "ffn_dim": 96, "sliding_window": sizes.books,
        "max_position_embeddings": sizes.books + 1,
    }  # fmt: skip
    return MoshiConfig(
        vocab_size=len(WORDS), hidden_size=sizes.width, num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads, num_key_value_heads=sizes.kv_heads, sliding_window=sizes.window,
        max_position_embeddings=4096, ffn_dim=192, num_codebooks=sizes.books, audio_encoder_config=codec,
        depth_decoder_config=depth, rope_parameters={"rope_type": "default", "rope_theta": sizes.theta},
    )  # fmt: skip


def make(folder: Path, sizes: Sizes = Sizes()) -> Path:
    """Write a checkpoint in transformers' format into ``folder``."""
    draw = torch.Generator().manual_seed(sizes.seed)
    model: Any = MoshiForConditionalGeneration(configuration(sizes)).eval().requires_grad_(False)
    for name, value in model.state_dict().items():
        if "initialized" not in name:
            value.copy_(_scaled(name, value, draw))
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def _scaled(name: str, value: Tensor, draw: torch.Generator) -> Tensor:
    """Return weights of a tensor's shape. The matrices of several codebooks are stacked in one tensor."""
    shape = tuple(value.shape)
    if len(shape) == 3 and name.startswith("depth_decoder"):
        return torch.stack([_weights(name, shape[1:], draw) for _ in range(shape[0])])
    if "lm_head" in name:
        return 3 * _weights(name, shape, draw)
    if "embed" in name and "proj" not in name and "codebook" not in name:
        return 0.5 * torch.randn(shape, generator=draw)
    return _weights(name, shape, draw)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose first ids are those of Moshi: end of padding, begin, end, padding."""
    vocabulary = [(word, 0.0 if i < 4 else -float(i)) for i, word in enumerate(WORDS)]
    made: Any = Tokenizer(models.Unigram(vocabulary, 0, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", False)
    made.add_special_tokens([AddedToken(word, special=True) for word in WORDS[:4]])
    made.save(str(folder / "tokenizer.json"))


def make_kyutai(folder: Path, source: Path) -> Path:
    """Write the checkpoint of ``source`` in Kyutai's format, as the loaders of moshi read it."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")
    lm = {name: value for name, value in tensors.items() if not name.startswith("audio_encoder.")}
    codec = {name.removeprefix("audio_encoder."): value for name, value in tensors.items() if name not in lm}
    heads = config["num_attention_heads"]
    save_file(_kyutai_lm(lm, config), folder / "model.safetensors")
    mimi = config["audio_encoder_config"]
    save_file(_kyutai_codec(codec, mimi["num_attention_heads"]), folder / "mimi.safetensors")
    _write(folder / "mimi.json", _kyutai_mimi(mimi))
    depth, books = config["depth_decoder_config"], config["num_codebooks"]
    delays = [0, *[1] * (books - 1)]
    _write(
        folder / "config.json",
        {
            "model_type": "moshi", "moshi_name": "model.safetensors", "mimi_name": "mimi.safetensors",
            "mimi_config_name": "mimi.json", "tokenizer_name": "text.model", "dim": config["hidden_size"],
            "text_card": config["vocab_size"], "existing_text_padding_id": 3, "n_q": 2 * books, "dep_q": books,
            "card": mimi["codebook_size"], "num_heads": heads, "num_layers": config["num_hidden_layers"],
            "hidden_scale": 3 * config["ffn_dim"] / 4 / config["hidden_size"], "causal": True, "layer_scale": None,
            "context": config["sliding_window"], "max_period": 10_000, "gating": "silu", "norm": "rms_norm_f32",
            "positional_embedding": "rope", "depformer_dim": depth["hidden_size"],
            "depformer_dim_feedforward": 3 * depth["ffn_dim"] // 4,
            "depformer_num_heads": depth["num_attention_heads"],
            "depformer_num_layers": depth["num_hidden_layers"], "depformer_causal": True,
            "depformer_layer_scale": None, "depformer_multi_linear": True, "depformer_context": books,
            "depformer_gating": "silu", "depformer_pos_emb": "none", "depformer_weights_per_step": True,
            "delays": [0, *delays, *delays],
        },
    )  # fmt: skip
    return folder


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _paired(weight: Tensor, heads: int) -> Tensor:
    """Reorder rows so that rotary embeddings pair neighbouring channels, as in Kyutai's files."""
    rows, width = weight.shape
    return weight.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)


def _kyutai_lm(lm: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Tensor]:
    heads, books = config["num_attention_heads"], config["num_codebooks"]
    found = {
        "text_emb.weight": lm["decoder.model.embed_tokens.weight"],
        "text_linear.weight": lm["decoder.lm_head.weight"],
        "out_norm.alpha": lm["decoder.model.norm.weight"].view(1, 1, -1),
        "depformer_text_emb.weight": lm["depth_decoder.text_embed_tokens.weight"],
    }
    for book in range(2 * books):
        found[f"emb.{book}.weight"] = lm[f"embed_tokens.{book}.weight"]
    for book in range(books):
        found[f"depformer_in.{book}.weight"] = lm["depth_decoder.input_projections.weight"][book]
        found[f"linears.{book}.weight"] = lm["depth_decoder.lm_heads.weight"][book]
    for book in range(books - 1):
        found[f"depformer_emb.{book}.weight"] = lm[f"depth_decoder.embed_tokens.{book}.weight"]
    for i in range(config["num_hidden_layers"]):
        theirs, ours = f"decoder.model.layers.{i}", f"transformer.layers.{i}"
        query, key, value = (lm[f"{theirs}.self_attn.{one}_proj.linear.weight"] for one in "qkv")
        joined = torch.cat((_paired(query, heads), _paired(key, heads), value))
        found[f"{ours}.self_attn.in_proj_weight"] = joined
        found[f"{ours}.self_attn.out_proj.weight"] = lm[f"{theirs}.self_attn.o_proj.linear.weight"]
        found[f"{ours}.gating.linear_in.weight"] = lm[f"{theirs}.mlp.fc1.weight"]
        found[f"{ours}.gating.linear_out.weight"] = lm[f"{theirs}.mlp.fc2.weight"]
        found |= _norms(lm, theirs, ours)
    for i in range(config["depth_decoder_config"]["num_hidden_layers"]):
        theirs, ours = f"depth_decoder.layers.{i}", f"depformer.layers.{i}"
        each = [lm[f"{theirs}.self_attn.{one}_proj.linear.weight"] for one in "qkv"]
        found[f"{ours}.self_attn.in_proj_weight"] = torch.cat(each, 1).flatten(0, 1)
        found[f"{ours}.self_attn.out_proj.weight"] = lm[f"{theirs}.self_attn.o_proj.linear.weight"].flatten(0, 1)
        for book in range(books):
            found[f"{ours}.gating.{book}.linear_in.weight"] = lm[f"{theirs}.mlp.fc1.weight"][book]
            found[f"{ours}.gating.{book}.linear_out.weight"] = lm[f"{theirs}.mlp.fc2.weight"][book]
        found |= _norms(lm, theirs, ours)
    return {name: value.contiguous() for name, value in found.items()}


def _norms(lm: dict[str, Tensor], theirs: str, ours: str) -> dict[str, Tensor]:
    return {
        f"{ours}.norm1.alpha": lm[f"{theirs}.input_layernorm.weight"].view(1, 1, -1),
        f"{ours}.norm2.alpha": lm[f"{theirs}.post_attention_layernorm.weight"].view(1, 1, -1),
    }


def _kyutai_codec(codec: dict[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Rename a codec's tensors. Source: the names that moshi's MimiModel has."""
    found: dict[str, Tensor] = {}
    joined: dict[str, dict[str, Tensor]] = {}
    for name, value in codec.items():
        if ".self_attn." in name and "o_proj" not in name:
            layer, _, last = name.rpartition(".self_attn.")
            joined.setdefault(layer, {})[last[0]] = value if last[0] == "v" else _paired(value, heads)
        else:
            found[_kyutai_codec_name(name, value)] = value.contiguous()
    for layer, parts in joined.items():
        stack, _, rest = layer.partition(".")
        whole = torch.cat([parts[one] for one in "qkv"])
        found[f"{stack}.transformer.{rest}.self_attn.in_proj_weight"] = whole
    return found


def kyutai_codec_shapes(codec: Any) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of a MimiModel's tensors in Kyutai's format."""
    own = {flat(name): value for name, value in codec.state_dict().items()}
    return {name: tuple(value.shape) for name, value in _kyutai_codec(own, codec.config.num_attention_heads).items()}


def flat(name: str) -> str:
    """Return the name that a tensor of MimiModel has in a checkpoint of transformers."""
    name = re.sub(r"^(en|de)coder\.((en|de)coder_transformer|downsample|upsample)", r"\2", name)
    return re.sub(r"(en|de)coder_seanet\.", "", name)


def _kyutai_codec_name(name: str, value: Tensor) -> str:
    replaced = {
        "semantic_residual_vector_quantizer.layers": "rvq_first.vq.layers",
        "acoustic_residual_vector_quantizer.layers": "rvq_rest.vq.layers",
        "semantic_residual_vector_quantizer": "rvq_first", "acoustic_residual_vector_quantizer": "rvq_rest",
        ".codebook.": "._codebook.", "embed_sum": "embedding_sum", ".initialized": "._initialized",
        "self_attn.o_proj": "self_attn.out_proj", "mlp.fc1": "linear1", "mlp.fc2": "linear2",
        "input_layernorm": "norm1", "post_attention_layernorm": "norm2", "self_attn_layer_scale": "layer_scale_1",
        "mlp_layer_scale": "layer_scale_2",
    }  # fmt: skip
    for old, new in replaced.items():
        name = name.replace(old, new)
    if name.startswith(("encoder_transformer", "decoder_transformer")):
        return name.replace("_transformer.layers", "_transformer.transformer.layers")
    if name.startswith("downsample"):
        return name.replace("conv", "conv.conv.conv")
    if name.startswith("upsample"):
        return name.replace("conv", "convtr.convtr.convtr")
    name = name.replace("coder.layers", "coder.model")
    number = int(name.split(".")[2]) if name.startswith("decoder.model") else 0
    widens = number in (2, 5, 8, 11) and "block" not in name
    return name.replace(".conv.", ".convtr.convtr." if widens else ".conv.conv.")


def _kyutai_mimi(mimi: dict[str, Any]) -> dict[str, Any]:
    return {
        "sample_rate": 24_000, "channels": 1, "frame_rate": 12.5,
        "seanet": {
            "channels": 1, "dimension": mimi["hidden_size"], "causal": True, "n_filters": mimi["num_filters"],
            "n_residual_layers": 1, "activation": "ELU", "compress": 2, "dilation_base": 2,
            "disable_norm_outer_blocks": 0, "kernel_size": 7, "residual_kernel_size": 3, "last_kernel_size": 3,
            "norm": "none", "pad_mode": "constant", "ratios": [8, 6, 5, 4], "true_skip": True,
        },
        "quantizer": {
            "dimension": mimi["codebook_dim"], "n_q": mimi["num_quantizers"], "bins": mimi["codebook_size"],
            "input_dimension": mimi["hidden_size"], "output_dimension": mimi["hidden_size"],
        },
        "transformer": {
            "d_model": mimi["hidden_size"], "num_heads": mimi["num_attention_heads"],
            "num_layers": mimi["num_hidden_layers"], "causal": True, "layer_scale": 0.01,
            "context": mimi["sliding_window"], "conv_layout": True, "max_period": 10_000, "gating": "none",
            "norm": "layer_norm", "positional_embedding": "rope", "dim_feedforward": mimi["intermediate_size"],
            "input_dimension": mimi["hidden_size"], "output_dimensions": [mimi["hidden_size"]],
        },
    }  # fmt: skip


if __name__ == "__main__":
    made = make(Path(sys.argv[1]))
    print(f"made {made}")
