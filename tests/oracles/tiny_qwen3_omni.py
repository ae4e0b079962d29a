"""Make tiny random checkpoints of Qwen3-Omni's exact architecture, with a tokenizer and a template of their own.

Weights are scaled by fan-in, so that logits are lively and well apart and the sound is audible: with the usual small
initialisation every answer would be the same token for ever, and tests would prove nothing.
``python -m tests.oracles.tiny_qwen3_omni DIR`` makes one.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3OmniMoeConfig,
    Qwen3OmniMoeForConditionalGeneration,
    WhisperFeatureExtractor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.utils import logging

logging.disable_progress_bar()  # its monitor is a thread that stays

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<tts_pad>", "<tts_text_bos>",
    "<tts_text_eod>", "<tts_text_bos_single>",
)  # fmt: skip
PLAIN = ("<tool_call>", "</tool_call>")
"""Tokens of their own that are no special ones, as in the real vocabulary."""
NAMED = {
    "audio_token": "<|audio_pad|>", "image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
    "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
    "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
}  # fmt: skip

TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content %}
{%- if part.type == "audio" %}<|audio_start|><|audio_pad|><|audio_end|>
{%- elif part.type == "image" %}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == "video" %}<|vision_start|><|video_pad|><|vision_end|>
{%- else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}
{%- for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEXTS = [
    "Hello there, how are you doing today? I am well, and the weather is fine.",
    "What do you see in this picture? A red square beside a blue circle.",
    "You are a friendly assistant that can hear, see and speak.",
    "Count with me: one two three four five six seven eight nine ten.",
    "tool name arguments city true false null",
] + ["user\n", "assistant\n", "system\n"] * 40  # each role must be one token, as in the real vocabulary


@dataclass(frozen=True, slots=True)
class Sizes:
    """What differs between the checkpoints that tests run on."""

    groups: int = 16
    codebook: int = 256
    thinker_layers: int = 4
    talker_layers: int = 3
    predictor_layers: int = 2
    experts: int = 8
    top_k: int = 2
    heads: int = 4
    kv_heads: int = 2
    accept_layer: int = 2
    seed: int = 0
    shard: str = "5GB"


def make(folder: Path, sizes: Sizes = Sizes()) -> Path:
    """Write a checkpoint into ``folder``."""
    tokenizer = make_tokenizer()
    model = _model(make_config(tokenizer, sizes), sizes)
    ids = tokenizer.convert_tokens_to_ids
    model.generation_config = GenerationConfig(pad_token_id=ids("<|endoftext|>"), eos_token_id=ids("<|im_end|>"))
    model.save_pretrained(folder, max_shard_size=sizes.shard)
    tokenizer.save_pretrained(folder)
    write_preprocessor(folder)
    return folder


def trained(texts: Sequence[str], normalizer: Any = None) -> Tokenizer:
    """Train byte pairs of 480 tokens, which split a text as the real ones do."""
    bare = Tokenizer(models.BPE())
    if normalizer is not None:
        bare.normalizer = normalizer
    bare.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    bare.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bare.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=480, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
    )
    return bare


def make_tokenizer() -> Any:
    bare = trained(_TEXTS)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<|im_end|>", pad_token="<|endoftext|>", extra_special_tokens=NAMED,
        model_max_length=32768,
    )  # fmt: skip
    whole.add_tokens(list(SPECIAL), special_tokens=True)
    whole.add_tokens(list(PLAIN))
    whole.chat_template = TEMPLATE
    for role in ("user", "assistant", "system"):
        assert len(whole.encode(role, add_special_tokens=False)) == 1, role
    return whole


def make_config(tokenizer: Any, sizes: Sizes) -> Qwen3OmniMoeConfig:
    ids = tokenizer.convert_tokens_to_ids
    role = {name: tokenizer.encode(name, add_special_tokens=False)[0] for name in ("user", "assistant", "system")}
    places = {
        "audio_token_id": ids("<|audio_pad|>"), "image_token_id": ids("<|image_pad|>"),
        "video_token_id": ids("<|video_pad|>"), "audio_start_token_id": ids("<|audio_start|>"),
        "vision_start_token_id": ids("<|vision_start|>"),
    }  # fmt: skip
    ends = {"vision_end_token_id": ids("<|vision_end|>"), "audio_end_token_id": ids("<|audio_end|>")}
    return Qwen3OmniMoeConfig(
        thinker_config=_thinker(tokenizer, sizes) | places | ends | {"user_token_id": role["user"]},
        talker_config=_talker(sizes) | places,
        code2wav_config=_code2wav(sizes),
        im_start_token_id=ids("<|im_start|>"), im_end_token_id=ids("<|im_end|>"), tts_pad_token_id=ids("<tts_pad>"),
        tts_bos_token_id=ids("<tts_text_bos>"), tts_eos_token_id=ids("<tts_text_eod>"),
        **{f"{name}_token_id": value for name, value in role.items()},
    )  # fmt: skip


_MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3], "mrope_interleaved": True}
_THINKER_WIDTH, _TALKER_WIDTH = 64, 48


def _attention(sizes: Sizes) -> dict[str, Any]:
    return {"num_attention_heads": sizes.heads, "num_key_value_heads": sizes.kv_heads, "head_dim": 16}


def _thinker(tokenizer: Any, sizes: Sizes) -> dict[str, Any]:
    text = {
        "vocab_size": (len(tokenizer) + 63) // 64 * 64, "hidden_size": _THINKER_WIDTH, "intermediate_size": 96,
        "num_hidden_layers": sizes.thinker_layers, "num_experts": sizes.experts, "num_experts_per_tok": sizes.top_k,
        "moe_intermediate_size": 32, "rope_parameters": _MROPE, "max_position_embeddings": 8192,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
    }  # fmt: skip
    audio = {
        "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64,
        "output_dim": _THINKER_WIDTH, "downsample_hidden_size": 16, "n_window": 50, "n_window_infer": 800,
        "num_mel_bins": 128,
    }  # fmt: skip
    vision = {
        "depth": 3, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": _THINKER_WIDTH,
        "deepstack_visual_indexes": [0, 1, 2], "num_position_embeddings": 256, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    return {
        "text_config": text | _attention(sizes), "audio_config": audio, "vision_config": vision,
        "position_id_per_seconds": 13,
    }  # fmt: skip


def _talker(sizes: Sizes) -> dict[str, Any]:
    book = sizes.codebook
    text = {
        # The reference suppresses the last 1024 ids but the end: all that lies above the codebook.
        "vocab_size": book + 1024, "hidden_size": _TALKER_WIDTH, "intermediate_size": 96,
        "num_hidden_layers": sizes.talker_layers, "num_experts": sizes.experts, "num_experts_per_tok": sizes.top_k,
        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32, "rope_parameters": _MROPE,
        "max_position_embeddings": 8192,
    }  # fmt: skip
    predictor = {
        "vocab_size": book, "hidden_size": _TALKER_WIDTH, "intermediate_size": 96,
        "num_hidden_layers": sizes.predictor_layers, "num_code_groups": sizes.groups, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    }  # fmt: skip
    return {
        "thinker_hidden_size": _THINKER_WIDTH, "accept_hidden_layer": sizes.accept_layer,
        "num_code_groups": sizes.groups, "spatial_merge_size": 2, "position_id_per_seconds": 13,
        "codec_pad_id": book + 100, "codec_bos_id": book + 101, "codec_eos_token_id": book + 102,
        "codec_nothink_id": book + 107, "codec_think_bos_id": book + 108, "codec_think_eos_id": book + 109,
        "speaker_id": {"chelsie": book + 253, "ethan": book + 254, "aiden": book + 255},
        "text_config": text | _attention(sizes), "code_predictor_config": predictor | _attention(sizes),
    }  # fmt: skip


def _code2wav(sizes: Sizes) -> dict[str, Any]:
    return {
        "codebook_size": sizes.codebook, "num_quantizers": sizes.groups, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 72,
        "decoder_dim": 64, "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip


@torch.no_grad()
def _model(config: Qwen3OmniMoeConfig, sizes: Sizes) -> Any:
    torch.manual_seed(sizes.seed)
    model: Any = Qwen3OmniMoeForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        scale(name, parameter)
    last = model.code2wav.decoder[-1].conv
    heard: list[float] = []
    hook = last.register_forward_hook(lambda _module, _inputs, output: heard.append(output.std().item()))
    model.code2wav(torch.randint(0, sizes.codebook, (1, sizes.groups, 50)))
    hook.remove()
    last.weight.mul_(0.15 / heard[0])  # audible, and seldom clipped
    return model


def scale(name: str, parameter: nn.Parameter) -> None:
    """Give a parameter random values that keep the signal alive."""
    *_, layer, kind = name.split(".")
    if kind in ("alpha", "beta"):
        parameter.uniform_(-0.3, 0.3)
    elif "norm" in layer and parameter.ndim == 1:
        parameter.normal_(1.0, 0.1) if kind == "weight" else parameter.zero_()
    elif kind == "scale" or kind == "gamma":
        parameter.fill_(0.3)
    elif parameter.ndim == 1:
        parameter.normal_(0, 0.02)
    elif "embed" in name and parameter.ndim == 2 and "proj" not in name:
        parameter.normal_(0, 1.0)
    else:
        convolution = "conv" in name or parameter.ndim > 3
        parameter.normal_(0, 1 / math.sqrt(math.prod(parameter.shape[1:]) if convolution else parameter.shape[-1]))


def write_preprocessor(folder: Path, patch: int = 16, processor: str = "Qwen3OmniMoeProcessor") -> None:
    """The keys of the real repository; a whole processor cannot be built without torchvision."""
    image = Qwen2VLImageProcessorPil(
        patch_size=patch,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": (2 * patch) ** 2, "longest_edge": 64 * (2 * patch) ** 2},
    )
    audio = WhisperFeatureExtractor(
        feature_size=128, sampling_rate=16000, hop_length=160, n_fft=400, chunk_length=30, return_attention_mask=True
    )
    kinds = {
        "image_processor_type": "Qwen2VLImageProcessor", "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": processor,
    }  # fmt: skip
    text = json.dumps({**image.to_dict(), **audio.to_dict(), **kinds}, indent=1)
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    print(f"made {make(Path(sys.argv[1]))}")
