"""Make tiny random checkpoints of Qwen2.5-Omni's exact architecture, with the tokenizer of the other tiny ones.

Both ends of the vocoder are scaled: the mel of a random network is large, and its sound would be clipped.
``python -m tests.oracles.tiny_qwen2_5_omni DIR`` makes one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, Qwen2_5OmniConfig, Qwen2_5OmniForConditionalGeneration

from tests.oracles.tiny_qwen3_omni import make_tokenizer, scale, write_preprocessor

BOOK = 256
"""Codes; behind them come the ids of pad, beginning, end and mask, at the distances that they have in a real one."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What differs between the checkpoints that tests run on."""

    thinker_layers: int = 3
    talker_layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    dit_layers: int = 4
    tied: bool = False
    seed: int = 0
    shard: str = "5GB"


def make(folder: Path, sizes: Sizes = Sizes()) -> Path:
    """Write a checkpoint into ``folder``."""
    tokenizer = make_tokenizer()
    model = _model(make_config(tokenizer, sizes), sizes)
    ids = tokenizer.convert_tokens_to_ids
    ends = {"pad_token_id": ids("<|endoftext|>"), "eos_token_id": ids("<|im_end|>")}
    model.generation_config = model.thinker.generation_config = GenerationConfig(**ends)
    model.save_pretrained(folder, max_shard_size=sizes.shard)
    drawn = torch.Generator().manual_seed(sizes.seed)
    voices = {
        name: {
            "cond": torch.randn(1, 16, generator=drawn), "ref_mel": torch.randn(1, 60, 80, generator=drawn) - 4,
            "bos_token": ids(begin),
        }
        for name, begin in (("Chelsie", "<tts_text_bos>"), ("Ethan", "<tts_text_bos_single>"))
    }  # fmt: skip
    torch.save(voices, folder / "spk_dict.pt")
    tokenizer.save_pretrained(folder)
    write_preprocessor(folder, 14, "Qwen2_5OmniProcessor")
    return folder


def make_config(tokenizer: Any, sizes: Sizes) -> Qwen2_5OmniConfig:
    ids = tokenizer.convert_tokens_to_ids
    media = {
        "audio_token_index": ids("<|audio_pad|>"), "image_token_index": ids("<|image_pad|>"),
        "video_token_index": ids("<|video_pad|>"), "audio_start_token_id": ids("<|audio_start|>"),
        "audio_end_token_id": ids("<|audio_end|>"), "vision_start_token_id": ids("<|vision_start|>"),
        "vision_end_token_id": ids("<|vision_end|>"), "position_id_per_seconds": 25, "seconds_per_chunk": 2,
    }  # fmt: skip
    text_ids = {
        "tts_text_start_token_id": ids("<tts_text_bos>"), "tts_text_end_token_id": ids("<tts_text_eod>"),
        "tts_text_pad_token_id": ids("<tts_pad>"),
    }  # fmt: skip
    user = tokenizer.encode("user", add_special_tokens=False)[0]
    return Qwen2_5OmniConfig(
        thinker_config=_thinker(len(tokenizer), sizes) | media | {"user_token_id": user},
        talker_config=_talker(sizes) | media | text_ids,
        token2wav_config={"dit_config": _dit(sizes), "bigvgan_config": _bigvgan()},
    )


_MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
_TALKER_WIDTH = 48


def _thinker(words: int, sizes: Sizes) -> dict[str, Any]:
    text = {
        "vocab_size": (words + 63) // 64 * 64, "hidden_size": sizes.width, "intermediate_size": 128,
        "num_hidden_layers": sizes.thinker_layers, "num_attention_heads": sizes.width // 16,
        "num_key_value_heads": sizes.kv_heads, "rope_parameters": _MROPE, "max_position_embeddings": 8192,
        "tie_word_embeddings": sizes.tied,
    }  # fmt: skip
    audio = {
        "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64,
        "output_dim": sizes.width, "n_window": 100, "num_mel_bins": 128, "max_source_positions": 1500,
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": sizes.width,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
        "fullatt_block_indexes": [1],
    }  # fmt: skip
    return {
        "text_config": text, "audio_config": audio, "vision_config": vision, "tie_word_embeddings": sizes.tied
    }  # fmt: skip


def _talker(sizes: Sizes) -> dict[str, Any]:
    return {
        "vocab_size": BOOK + 64, "embedding_size": sizes.width, "hidden_size": _TALKER_WIDTH, "intermediate_size": 96,
        "num_hidden_layers": sizes.talker_layers, "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads, "head_dim": 16, "rope_parameters": _MROPE,
        "max_position_embeddings": 8192, "spatial_merge_size": 2, "tts_codec_pad_token_id": BOOK + 4,
        "tts_codec_start_token_id": BOOK + 5, "tts_codec_end_token_id": BOOK + 6, "tts_codec_mask_token_id": BOOK + 8,
    }  # fmt: skip


def _dit(sizes: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": 32, "num_hidden_layers": sizes.dit_layers, "num_attention_heads": 2, "head_dim": 16,
        "ff_mult": 2, "emb_dim": 16, "block_size": 24, "look_ahead_layers": [2], "look_backward_layers": [0, 3],
        "repeats": 2, "num_embeds": BOOK + 1, "mel_dim": 80, "enc_emb_dim": 16, "enc_dim": 16,
        "enc_channels": [16, 16, 16, 16, 48], "enc_kernel_sizes": [5, 3, 3, 3, 1], "enc_dilations": [1, 2, 3, 4, 1],
        "enc_attention_channels": 8, "enc_res2net_scale": 2, "enc_se_channels": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "max_position_embeddings": 32768,
    }  # fmt: skip


def _bigvgan() -> dict[str, Any]:
    return {
        "mel_dim": 80, "upsample_initial_channel": 64, "resblock_kernel_sizes": [3, 7, 11],
        "resblock_dilation_sizes": [[1, 3, 5]] * 3, "upsample_rates": [5, 3, 2, 2, 2, 2],
        "upsample_kernel_sizes": [11, 7, 4, 4, 4, 4],
    }  # fmt: skip


@torch.no_grad()
def _model(config: Qwen2_5OmniConfig, sizes: Sizes) -> Any:
    torch.manual_seed(sizes.seed)
    model: Any = Qwen2_5OmniForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        scale(name.replace("time_embed", "time"), parameter)  # no table, though its name says so: it would be chaos
    vocoder = model.token2wav.code2wav_bigvgan_model
    model.token2wav.code2wav_dit_model.proj_out.weight.mul_(0.1)
    heard: list[float] = []
    hook = vocoder.conv_post.register_forward_hook(lambda _module, _inputs, output: heard.append(output.std().item()))
    vocoder(torch.randn(1, 80, 48))
    hook.remove()
    vocoder.conv_post.weight.mul_(0.15 / heard[0])
    return model


if __name__ == "__main__":
    print(f"made {make(Path(sys.argv[1]))}")
