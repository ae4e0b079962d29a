"""A random model of a real one's size, for times: ``python random_gguf.py FOLDER FILE.gguf``.

It has the tiny model's tokenizer and template, which lie in FOLDER, and 113 million weights of 8 bits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine.training.tiny_llm.write_gguf import write_shape, write_tokenizer

WIDTH, INNER, LAYERS, HEADS = 768, 2048, 16, 12
SHAPES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH, WIDTH),
    "attn_v": (WIDTH, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
}


def main(folder: Path, file: Path) -> None:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    config |= {
        "max_position_embeddings": 8192, "hidden_size": WIDTH, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
    }  # fmt: skip
    writer = gguf.GGUFWriter(file, "llama")
    write_shape(writer, config)
    write_tokenizer(writer, folder, config)
    draw = np.random.default_rng(0)
    for name in ("token_embd", "output"):
        add(writer, f"{name}.weight", draw, (config["vocab_size"], WIDTH))
    ones = np.ones(WIDTH, np.float32)
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            add(writer, f"blk.{layer}.{name}.weight", draw, shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add(writer: Any, name: str, draw: np.random.Generator, shape: tuple[int, int]) -> None:
    weights = draw.standard_normal(shape, np.float32) * 0.02
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
