"""Qwen3-Omni-30B-A3B without its weights: its shapes, with random tensors generated on the device.

Families read it like a checkpoint, for measurements, but no file contains it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.nn.weights import SafetensorsCheckpoint
from tests.oracles import tiny_qwen3_omni as tiny

ATTENTION = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
TRUE: dict[str, dict[str, Any]] = {
    "thinker_config.text_config": ATTENTION | {
        "hidden_size": 2048, "num_hidden_layers": 48, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768, "intermediate_size": 768, "vocab_size": 152064,
        "max_position_embeddings": 65536,
    },
    "thinker_config.audio_config": {
        "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
        "output_dim": 2048, "downsample_hidden_size": 480,
    },
    "thinker_config.vision_config": {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 2048,
        "deepstack_visual_indexes": [8, 16, 24], "num_position_embeddings": 2304,
    },
    "talker_config": {"thinker_hidden_size": 2048, "accept_hidden_layer": 24},
    "talker_config.text_config": {
        "hidden_size": 1024, "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 2,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 384,
        "shared_expert_intermediate_size": 768, "intermediate_size": 2048, "max_position_embeddings": 65536,
    },
    "talker_config.code_predictor_config": {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 5, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128,
    },
    "code2wav_config": {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "num_attention_heads": 16,
        "num_key_value_heads": 16, "decoder_dim": 1536,
    },
}  # fmt: skip
"""Settings of Qwen3-Omni-30B-A3B's config.json that override those of a tiny checkpoint."""


class Random(SafetensorsCheckpoint):
    """A checkpoint that generates its tensors on request, on the device, seeded by their names."""

    device = torch.device("cpu")
    dtype = torch.float32
    silent = 0  # token that ends speech; its logit is 0, so that answers do not end early

    def _locate(self) -> dict[str, Path]:
        return {}

    def __contains__(self, name: str) -> bool:
        return name.endswith("experts.gate_up_proj")

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> Tensor:
        assert shape is not None
        dice = torch.Generator(self.device).manual_seed(hash_of(name))
        made = torch.empty(tuple(shape), device=self.device, dtype=self.dtype)
        *_, layer, kind = name.split(".")
        if kind in ("alpha", "beta"):
            return made.uniform_(-0.3, 0.3, generator=dice)
        if "norm" in layer and len(shape) == 1:
            return made.fill_(float(kind == "weight"))
        if kind in ("scale", "gamma"):
            return made.fill_(0.3)
        if len(shape) == 1:
            return made.normal_(0, 0.02, generator=dice)
        if "embed" in name and len(shape) == 2 and "proj" not in name:
            return made.normal_(0, 1, generator=dice)
        whole = "conv" in name or len(shape) > 3
        made.normal_(0, 1 / math.sqrt(math.prod(shape[1:]) if whole else shape[-1]), generator=dice)
        if name.endswith("codec_head.weight"):
            made[self.silent] = 0
        return made


def hash_of(name: str) -> int:
    return sum((i + 1) * ord(letter) for i, letter in enumerate(name))


def describe(folder: Path, small: bool) -> Path:
    """Write a checkpoint's folder without weights, with true or tiny shapes."""
    tokenizer = tiny.make_tokenizer()
    sizes = tiny.Sizes() if small else tiny.Sizes(codebook=2048, groups=16)
    config = tiny.make_config(tokenizer, sizes).to_dict()
    for path, values in {} if small else TRUE.items():
        part = config
        for name in path.split("."):
            part = part[name]
        part |= values
        for name in ("layer_types", "num_local_experts"):  # derived by the config class
            part.pop(name, None)
        if "rope_parameters" in part and part["rope_parameters"].get("mrope_section"):
            part["rope_parameters"]["mrope_section"] = [24, 20, 20]
    config["architectures"] = [Qwen3OmniSource.architecture]
    Random.silent = config["talker_config"]["codec_eos_token_id"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer.save_pretrained(folder)
    tiny.write_preprocessor(folder)
    return folder
