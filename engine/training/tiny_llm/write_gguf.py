"""Convert the tiny model for llama.cpp, in F32: ``python -m engine.training.tiny_llm.write_gguf FOLDER FILE.gguf``.

Source: llama.cpp's ``convert_hf_to_gguf.py`` (LlamaModel).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def main(folder: Path, file: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    write_shape(writer, config)
    write_tokenizer(writer, folder, config)
    for name, weights in load_file(folder / "model.safetensors").items():
        writer.add_tensor(name_of(name), turned(name, weights.astype(np.float32), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_shape(writer: Any, config: dict[str, Any]) -> None:
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def write_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    tree = json.loads((folder / "tokenizer.json").read_text())
    marks = {token["content"] for token in tree["added_tokens"]}
    tokens = sorted(tree["model"]["vocab"], key=tree["model"]["vocab"].__getitem__)
    kinds = (gguf.TokenType.CONTROL if token in marks else gguf.TokenType.NORMAL for token in tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(list(kinds))
    writer.add_token_merges([" ".join(pair) for pair in tree["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text())


def name_of(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{_LAYER[part]}.{kind}"


def turned(name: str, weights: Any, config: dict[str, Any]) -> Any:
    """Reorder queries and keys for llama.cpp's rotation, whose pairs are adjacent instead of half a head apart."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if heads is None:
        return weights
    out, into = weights.shape
    return weights.reshape(config[heads], 2, out // config[heads] // 2, into).swapaxes(1, 2).reshape(out, into)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
