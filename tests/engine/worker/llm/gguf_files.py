"""Files of language models that say what a test wants, written in some milliseconds: llama.cpp itself, no training.

A Llama of one layer whose attention and feed-forward add nothing: what comes next depends on the last token alone, and
which one that is stands in its output's weights. Each word of its answers is a token, and so is each byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.worker.llm.gguf import read_header

gguf: Any = pytest.importorskip("gguf", reason="gguf is not installed: pip install -e '.[dev]'")
pytest.importorskip("xllamacpp", reason="xllamacpp is not installed: pip install -e '.[local]'")

END, USER, ASSISTANT = "<|end|>", "<|user|>", "<|assistant|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
COUNTING = tuple(f"{word} " for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"))
CONTEXT = 2048
HEADS = 4
EYE = 16

Follows = Mapping[str, Sequence[str]]
"""What may come behind each token, equally likely."""


def saying(*words: str) -> Follows:
    """One answer, word by word. No word may be in it twice."""
    whole = (ASSISTANT, *words, END)
    assert len(set(whole)) == len(whole)
    return {before: [after] for before, after in itertools.pairwise(whole)}


def counting() -> Follows:
    """An answer that never ends: "one two … ten one …"."""
    return {ASSISTANT: [COUNTING[0]], **{word: [COUNTING[(n + 1) % 10]] for n, word in enumerate(COUNTING)}}


def rolling() -> Follows:
    """An answer that never ends, of words by chance."""
    return dict.fromkeys((ASSISTANT, *COUNTING), COUNTING)


def write_model(
    path: Path, follows: Follows, template: str | None = TEMPLATE, context: int = CONTEXT, name: str = "Script"
) -> Path:
    known = [*MARKS, *(chr(byte) for byte in range(128)), *(f"byte {n}" for n in range(128, 256))]
    places = {word: n for n, word in enumerate(dict.fromkeys(itertools.chain(known, follows, *follows.values())))}
    tokens = [*MARKS, *BYTES, *("".join(BYTES[byte] for byte in word.encode()) for word in [*places][len(known) :])]
    width = -(-len(tokens) // 32) * 32
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // HEADS)
    if template is not None:
        writer.add_chat_template(template)
    _add_tokenizer(writer, tokens)
    _add_tensors(
        writer, width, len(tokens), {places[one]: [places[n] for n in next_] for one, next_ in follows.items()}
    )
    _finish(writer)
    return path


def write_projector(path: Path, model: Path | None = None) -> Path:
    """Eyes of 2 x 2 patches for a model, of random weights; without one, a file that only says that it is some."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    numbers = {"image_size": 28, "patch_size": 14, "embedding_length": EYE, "feed_forward_length": EYE}
    numbers |= {"block_count": 2, "attention.head_count": 2, "projection_dim": EYE}
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    writer.add_bool("clip.use_gelu", False)
    shapes: dict[str, tuple[int, ...]] = {"mm.0.weight": (EYE, EYE)}
    if model is not None:
        shapes = _eye_shapes(int(read_header(model).fields["llama.embedding_length"]))
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, (rng.standard_normal(shape) * 0.1).astype(np.float32))
    _finish(writer)
    return path


def _eye_shapes(width: int) -> dict[str, tuple[int, ...]]:
    """As of LLaVA: a ViT, and two layers from it to embeddings of so many numbers."""
    whole = {"v.patch_embd.weight": (EYE, 3, 14, 14), "v.class_embd": (EYE,), "v.position_embd.weight": (5, EYE)}
    squares = [f"v.blk.{n}.{name}" for n in range(2) for name in ("attn_q", "attn_k", "attn_v", "attn_out")]
    squares += [f"v.blk.{n}.{name}" for n in range(2) for name in ("ffn_up", "ffn_down")]
    norms = ["v.pre_ln", *(f"v.blk.{n}.{name}" for n in range(2) for name in ("ln1", "ln2"))]
    for names, shape in ((squares, (EYE, EYE)), (norms, (EYE,)), (["mm.0"], (width, EYE)), (["mm.2"], (width, width))):
        whole |= {f"{name}.weight": shape for name in names} | {f"{name}.bias": shape[:1] for name in names}
    return whole


def _bytes() -> Iterator[str]:
    """A character for each byte, as GPT-2 writes them: those that are no printable ones begin at 256."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return (chr(byte) if byte in plain else chr(next(hidden)) for byte in range(256))


MARKS, BYTES = (END, USER, ASSISTANT), tuple(_bytes())


def _add_tokenizer(writer: Any, tokens: Sequence[str]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL] * len(MARKS) + [kinds.NORMAL] * (len(tokens) - len(MARKS)))
    writer.add_token_merges(["a b"])  # llama.cpp wants one; there is no token "ab"
    writer.add_vocab_size(len(tokens))
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def _add_tensors(writer: Any, width: int, count: int, follows: Mapping[int, Sequence[int]]) -> None:
    output = np.zeros((count, width), np.float32)
    for one, others in follows.items():
        output[list(others), one] = 2.0
    attention = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (width, width))
    shapes = attention | {"ffn_gate": (32, width), "ffn_up": (32, width), "ffn_down": (width, 32)}
    tensors = {
        "token_embd": np.eye(count, width, dtype=np.float32),
        "output": output,
        **{f"blk.0.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()},
        **{name: np.ones(width, np.float32) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")},
    }
    for name, values in tensors.items():
        writer.add_tensor(f"{name}.weight", values)


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
