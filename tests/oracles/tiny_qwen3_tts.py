"""Make tiny random checkpoints of Qwen3-TTS's exact architecture, with a tokenizer of their own.

Names and shapes of tensors are those of the vendor's repositories (package qwen-tts 0.1.1). Weights are scaled by
fan-in, as those of ``tiny_qwen3_omni``. ``python -m tests.oracles.tiny_qwen3_tts DIR [KIND]`` makes one.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from tokenizers import normalizers
from torch import Tensor
from transformers import MimiConfig, MimiModel
from transformers.utils import logging

from tests.oracles.tiny_qwen3_omni import trained

logging.disable_progress_bar()  # its monitor is a thread that stays

Kind = Literal["custom_voice", "voice_design", "base"]
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
_TEXTS = [
    "Hello there, how are you doing today? I am well, and the weather is fine.",
    "A calm, low voice of an old man who tells a story to children.",
    "Count with me: one two three four five six seven eight nine ten.",
    "今天天气很好，我们去公园玩吧。",
] + ["user\n", "assistant\n"] * 40  # each role must be one token, as in the real vocabulary
Shapes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What differs between the checkpoints that tests run on."""

    kind: Kind = "custom_voice"
    size: str = "1b7"
    width: int = 64
    predictor_width: int = 48
    """The real 0.6B has one width for both, the 1.7B two."""
    layers: int = 3
    book: int = 256
    seed: int = 0


def make(folder: Path, sizes: Sizes = Sizes()) -> Path:
    """Write a checkpoint into ``folder``."""
    draw = torch.Generator().manual_seed(sizes.seed)
    folder.mkdir(parents=True, exist_ok=True)
    ids = write_tokenizer(folder)
    config = make_config(ids, sizes)
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", GENERATION)
    shapes = [*_talker(config["talker_config"])]
    if sizes.kind == "base":
        shapes += [(f"speaker_encoder.{name}", shape) for name, shape in _speaker(config["speaker_encoder_config"])]
    save_file({name: _weights(name, shape, draw) for name, shape in shapes}, folder / "model.safetensors")
    _write_codec(folder / "speech_tokenizer", sizes, draw)
    return folder


GENERATION = {
    "do_sample": True, "repetition_penalty": 1.05, "temperature": 0.9, "top_k": 50, "top_p": 1.0,
    "subtalker_dosample": True, "subtalker_temperature": 0.9, "subtalker_top_k": 50, "subtalker_top_p": 1.0,
    "max_new_tokens": 2048,
}  # fmt: skip


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def write_tokenizer(folder: Path) -> dict[str, int]:
    """Write a tokenizer as the real repositories have it; the ids of its marks."""
    model = json.loads(trained(_TEXTS, normalizers.NFC()).to_str())["model"]
    _write(folder / "vocab.json", model["vocab"])
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    first = len(model["vocab"])
    added = {
        str(first + i): {
            "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": True,
        }
        for i, token in enumerate(SPECIAL)
    }  # fmt: skip
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer", "processor_class": "Qwen3TTSProcessor", "added_tokens_decoder": added,
            "additional_special_tokens": list(SPECIAL[1:]), "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "bos_token": None, "unk_token": None, "errors": "replace", "split_special_tokens": False,
            "add_prefix_space": False, "model_max_length": 32768, "clean_up_tokenization_spaces": False,
        },
    )  # fmt: skip
    return {token: first + i for i, token in enumerate(SPECIAL)}


def make_config(ids: dict[str, int], sizes: Sizes) -> dict[str, Any]:
    book = sizes.book
    attention = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6}
    named = sizes.kind == "custom_voice"
    talker = {
        # The reference suppresses the last 1024 ids but the end: all that lies above the codebook.
        "vocab_size": book + 1024, "hidden_size": sizes.width, "intermediate_size": 96, **attention,
        "num_hidden_layers": sizes.layers, "text_hidden_size": 80, "text_vocab_size": (len(ids) + 480 + 63) // 64 * 64,
        "max_position_embeddings": 4096, "num_code_groups": 16, "rope_theta": 1e6, "hidden_act": "silu",
        "rope_scaling": {"interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
        "codec_pad_id": book + 100, "codec_bos_id": book + 101, "codec_eos_token_id": book + 102,
        "codec_think_id": book + 106, "codec_nothink_id": book + 107, "codec_think_bos_id": book + 108,
        "codec_think_eos_id": book + 109,
        "codec_language_id": {
            "chinese": book + 2, "english": book + 3, "german": book + 4, "sichuan_dialect": book + 5,
        },
        "spk_id": {"vivian": book + 1000, "ryan": book + 1001, "eric": book + 1002} if named else {},
        "spk_is_dialect": {"vivian": False, "ryan": False, "eric": "sichuan_dialect"} if named else {},
        "code_predictor_config": {
            "vocab_size": book, "hidden_size": sizes.predictor_width, "intermediate_size": 96, "num_hidden_layers": 2,
            "num_code_groups": 16, "max_position_embeddings": 512, "rope_theta": 1e6, **attention,
        },
    }  # fmt: skip
    speaker = {
        "mel_dim": 128, "enc_dim": sizes.width, "enc_channels": [32, 32, 32, 32, 96],
        "enc_kernel_sizes": [5, 3, 3, 3, 1], "enc_dilations": [1, 2, 3, 4, 1], "enc_attention_channels": 16,
        "enc_res2net_scale": 8, "enc_se_channels": 16, "sample_rate": 24_000,
    }  # fmt: skip
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": sizes.size, "tts_model_type": sizes.kind,
        "im_start_token_id": ids["<|im_start|>"], "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"], "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"], "talker_config": talker, "speaker_encoder_config": speaker,
    }  # fmt: skip


def _stack(prefix: str, config: dict[str, Any], head_norms: bool = True) -> Shapes:
    """A stack of decoder layers and its last norm."""
    width, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"], "v": config["num_key_value_heads"]}
    for i in range(config["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        for name, count in heads.items():
            yield f"{layer}self_attn.{name}_proj.weight", (count * dim, width)
        yield f"{layer}self_attn.o_proj.weight", (width, heads["q"] * dim)
        for name in "qk" if head_norms else "":
            yield f"{layer}self_attn.{name}_norm.weight", (dim,)
        for name in ("gate_proj", "up_proj"):
            yield f"{layer}mlp.{name}.weight", (inner, width)
        yield f"{layer}mlp.down_proj.weight", (width, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", (width,)
    yield f"{prefix}norm.weight", (width,)


def _talker(config: dict[str, Any]) -> Shapes:
    width, inner, vocabulary = config["hidden_size"], config["text_hidden_size"], config["vocab_size"]
    yield "talker.model.codec_embedding.weight", (vocabulary, width)
    yield "talker.model.text_embedding.weight", (config["text_vocab_size"], inner)
    yield "talker.codec_head.weight", (vocabulary, width)
    yield from _linear("talker.text_projection.linear_fc1", inner, inner)
    yield from _linear("talker.text_projection.linear_fc2", width, inner)
    yield from _stack("talker.model.", config)
    predictor = config["code_predictor_config"]
    for i in range(predictor["num_code_groups"] - 1):
        yield f"talker.code_predictor.model.codec_embedding.{i}.weight", (predictor["vocab_size"], width)
        yield f"talker.code_predictor.lm_head.{i}.weight", (predictor["vocab_size"], predictor["hidden_size"])
    yield from _stack("talker.code_predictor.model.", predictor)
    if predictor["hidden_size"] != width:
        yield from _linear("talker.code_predictor.small_to_mtp_projection", predictor["hidden_size"], width)


def _linear(name: str, out: int, into: int, *kernel: int) -> Shapes:
    yield f"{name}.weight", (out, into, *kernel)
    yield f"{name}.bias", (out,)


def _speaker(config: dict[str, Any]) -> Shapes:
    channels, kernels = config["enc_channels"], config["enc_kernel_sizes"]
    scale, squeezed = config["enc_res2net_scale"], config["enc_se_channels"]
    yield from _linear("blocks.0.conv", channels[0], config["mel_dim"], kernels[0])
    for i in range(1, len(channels) - 1):
        yield from _linear(f"blocks.{i}.tdnn1.conv", channels[i], channels[i - 1], 1)
        for j in range(scale - 1):
            part = channels[i] // scale
            yield from _linear(f"blocks.{i}.res2net_block.blocks.{j}.conv", part, part, kernels[i])
        yield from _linear(f"blocks.{i}.tdnn2.conv", channels[i], channels[i], 1)
        yield from _linear(f"blocks.{i}.se_block.conv1", squeezed, channels[i], 1)
        yield from _linear(f"blocks.{i}.se_block.conv2", channels[i], squeezed, 1)
    yield from _linear("mfa.conv", channels[-1], channels[-1], kernels[-1])
    yield from _linear("asp.tdnn.conv", config["enc_attention_channels"], 3 * channels[-1], 1)
    yield from _linear("asp.conv", channels[-1], config["enc_attention_channels"], 1)
    yield from _linear("fc", config["enc_dim"], 2 * channels[-1], 1)


def _write_codec(folder: Path, sizes: Sizes, draw: torch.Generator) -> None:
    """The 12 Hz tokenizer: Mimi's encoder, and a decoder of its own."""
    folder.mkdir()
    encoder: dict[str, Any] = {
        "hidden_size": 32, "num_filters": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 64, "codebook_size": sizes.book, "codebook_dim": 16,
        "vector_quantization_hidden_dimension": 16, "num_quantizers": 20, "num_semantic_quantizers": 1,
        "upsampling_ratios": [8, 6, 5, 4], "sampling_rate": 24_000, "sliding_window": 250, "frame_rate": 12.5,
        "upsample_groups": 32,
    }  # fmt: skip
    decoder: dict[str, Any] = {
        "codebook_size": sizes.book, "codebook_dim": 32, "latent_dim": 48, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
        "sliding_window": 72, "decoder_dim": 64, "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2],
        "num_quantizers": 16, "rope_theta": 1e4, "rms_norm_eps": 1e-5, "max_position_embeddings": 8000,
    }  # fmt: skip
    config = {
        "architectures": ["Qwen3TTSTokenizerV2Model"], "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_config": encoder, "decoder_config": decoder, "encoder_valid_num_quantizers": 16,
        "input_sample_rate": 24_000, "output_sample_rate": 24_000, "decode_upsample_rate": 1920,
        "encode_downsample_rate": 1920,
    }  # fmt: skip
    _write(folder / "config.json", config)
    _write(
        folder / "preprocessor_config.json",
        {"feature_extractor_type": "EncodecFeatureExtractor", "feature_size": 1, "padding_side": "right",
         "padding_value": 0.0, "return_attention_mask": True, "sampling_rate": 24_000},
    )  # fmt: skip
    tensors = {f"decoder.{name}": _weights(name, shape, draw) for name, shape in _decoder(decoder)}
    tensors["decoder.decoder.6.conv.weight"] *= 0.01  # audible, and seldom clipped
    for name, value in MimiModel(MimiConfig(**encoder)).state_dict().items():
        if name.startswith(("encoder.", "quantizer.")):
            own = value if "initialized" in name else _weights(name, tuple(value.shape), draw)
            old = re.sub(r"^encoder\.(encoder_transformer|downsample)", r"\1", name).replace("encoder_seanet.", "")
            tensors[f"encoder.{old}"] = own.contiguous()
    save_file(tensors, folder / "model.safetensors")


def _decoder(config: dict[str, Any]) -> Shapes:
    inner, latent, width = config["codebook_dim"], config["latent_dim"], config["decoder_dim"]
    for name, books in (("rvq_first", 1), ("rvq_rest", config["num_quantizers"] - 1)):
        yield f"quantizer.{name}.input_proj.weight", (inner // 2, inner, 1)
        yield f"quantizer.{name}.output_proj.weight", (inner, inner // 2, 1)
        for i in range(books):
            yield f"quantizer.{name}.vq.layers.{i}._codebook.cluster_usage", (config["codebook_size"],)
            yield f"quantizer.{name}.vq.layers.{i}._codebook.embedding_sum", (config["codebook_size"], inner // 2)
    yield from _linear("pre_conv.conv", latent, inner, 3)
    yield from _stack("pre_transformer.", config, head_norms=False)
    for i in range(config["num_hidden_layers"]):
        for name in ("self_attn_layer_scale", "mlp_layer_scale"):
            yield f"pre_transformer.layers.{i}.{name}.scale", (config["hidden_size"],)
    yield from _linear("pre_transformer.input_proj", config["hidden_size"], latent)
    yield from _linear("pre_transformer.output_proj", latent, config["hidden_size"])
    for i, ratio in enumerate(config["upsampling_ratios"]):
        yield from _linear(f"upsample.{i}.0.conv", latent, latent, ratio)
        yield from _linear(f"upsample.{i}.1.dwconv.conv", latent, 1, 7)
        yield f"upsample.{i}.1.norm.weight", (latent,)
        yield f"upsample.{i}.1.norm.bias", (latent,)
        yield from _linear(f"upsample.{i}.1.pwconv1", 4 * latent, latent)
        yield from _linear(f"upsample.{i}.1.pwconv2", latent, 4 * latent)
        yield f"upsample.{i}.1.gamma", (latent,)
    yield from _linear("decoder.0.conv", width, latent, 7)
    for i, rate in enumerate(config["upsample_rates"], 1):
        yield from _upsampler(f"decoder.{i}.block.", width >> (i - 1), rate)
    last = len(config["upsample_rates"]) + 1
    yield from ((f"decoder.{last}.{name}", (width >> (last - 1),)) for name in ("alpha", "beta"))
    yield from _linear(f"decoder.{last + 1}.conv", 1, width >> (last - 1), 7)


def _upsampler(prefix: str, width: int, rate: int) -> Shapes:
    out = width // 2
    yield from ((f"{prefix}0.{name}", (width,)) for name in ("alpha", "beta"))
    yield f"{prefix}1.conv.weight", (width, out, 2 * rate)
    yield f"{prefix}1.conv.bias", (out,)
    for i in (2, 3, 4):
        for act in ("act1", "act2"):
            yield from ((f"{prefix}{i}.{act}.{name}", (out,)) for name in ("alpha", "beta"))
        yield from _linear(f"{prefix}{i}.conv1.conv", out, out, 7)
        yield from _linear(f"{prefix}{i}.conv2.conv", out, out, 1)


def _weights(name: str, shape: tuple[int, ...], draw: torch.Generator) -> Tensor:
    *_, layer, kind = name.split(".")
    normal = torch.randn(shape, generator=draw)
    if kind in ("alpha", "beta"):
        return 0.6 * torch.rand(shape, generator=draw) - 0.3
    if kind == "cluster_usage":
        return 0.5 + torch.rand(shape, generator=draw)
    if "norm" in layer and len(shape) == 1:
        return 1 + 0.1 * normal if kind == "weight" else 0 * normal
    if kind in ("scale", "gamma"):
        return torch.full(shape, 0.3)
    if len(shape) == 1:
        return 0.02 * normal
    if "embed" in name and len(shape) == 2 and "proj" not in name:
        return normal
    return normal / math.sqrt(math.prod(shape[1:]))


if __name__ == "__main__":
    made = make(Path(sys.argv[1]), Sizes(*sys.argv[2:3]))  # pyright: ignore[reportArgumentType]
    print(f"made {made}")
