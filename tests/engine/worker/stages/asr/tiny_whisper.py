"""A Whisper model of one layer in CTranslate2's format, whose words depend on the sound and on nothing else.

It has the files, the marks and, where it knows many languages, the number of tokens of the published models. The later
a token's position, the likelier is the end of the text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import whisper_spec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WORDS = ["Ġhello", "Ġwor", "ld", "Ġit", "Ġis", "Ġa", "Ġfine", "Ġda", "y", "s", "Ġone"]
LANGUAGES = ("en", "zh", "de", "es", "ru", "ko", "fr", "ja", "pt", "tr")
WIDTH = 16
LAST = ("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>")


def whisper(folder: Path, languages: tuple[str, ...] = ("en",)) -> Path:
    """Write a model of one language, or of many with as many tokens as the published ones have."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    written = [*letters, *(word for word in WORDS if word not in letters)]
    marks = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in languages), *LAST]
    tokens = [*written, *marks]
    if len(languages) > 1:  # CTranslate2 takes a model for multilingual by its empty token and their number
        before = [*(f"w{n}" for n in range(50_256 - len(written))), ""]
        after = [f"<|{n}|>" for n in range(51_865 - 50_257 - len(marks))]
        tokens = [*written, *before, *marks, *after]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark) for mark in marks])
    tokenizer.save(str(folder / "tokenizer.json"))
    spec = _spec(len(tokens), [tokens.index(word) for word in WORDS], [tokens.index(mark) for mark in marks])
    spec.register_vocabulary(tokens)
    spec.config.lang_ids = [tokens.index(f"<|{code}|>") for code in languages]
    spec.config.suppress_ids = [tokens.index(mark) for mark in marks[1:]]
    spec.config.suppress_ids_begin = [tokens.index("<|endoftext|>")]
    spec.validate()
    spec.save(str(folder))
    (folder / "vocabulary.json").unlink()
    (folder / "vocabulary.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    assert "lang_ids" in json.loads((folder / "config.json").read_text())
    return folder


def _spec(count: int, words: list[int], marks: list[int]) -> Any:
    drawn = np.random.default_rng(1)
    spec: Any = whisper_spec.WhisperSpec(1, 2, 1, 2)
    _fill(spec, drawn)
    late = np.tile([1.0, -1.0], WIDTH // 2).astype(np.float32)
    conv1, conv2 = drawn.normal(0, 0.5, (WIDTH, 80, 3)), drawn.normal(0, 0.5, (WIDTH, WIDTH, 3))
    spec.encoder.conv1.weight = conv1.astype(np.float32)
    spec.encoder.conv2.weight = conv2.astype(np.float32)
    spec.encoder.position_encodings.encodings = np.zeros((1500, WIDTH), np.float32)
    decoder = spec.decoder
    decoder.embeddings.weight = drawn.normal(0, 1, (count, WIDTH)).astype(np.float32)
    decoder.position_encodings.encodings = (np.arange(448)[:, None] * 0.4 * late).astype(np.float32)
    scores = np.zeros((count, WIDTH), np.float32)
    scores[words] = drawn.normal(0, 2, (len(words), WIDTH))
    scores[marks] = drawn.normal(0, 2, (len(marks), WIDTH))
    scores[marks[0]] = 3 * late
    decoder.projection.weight = scores
    bias = np.full(count, -50, np.float32)
    bias[[*words, *marks]] = 0
    decoder.projection.bias = bias
    return spec


def _fill(layer: Any, drawn: np.random.Generator) -> None:
    """Draw the weights of the layers that all models have; the caller sets the others."""
    children = [one for value in vars(layer).values() for one in (value if isinstance(value, list) else [value])]
    for child in children:
        match type(child).__name__:
            case "LinearSpec":
                _draw(child, drawn, WIDTH)
            case "LayerNormSpec":
                child.gamma = np.ones(WIDTH, np.float32)
                child.beta = np.zeros(WIDTH, np.float32)
            case "Conv1DSpec":
                child.bias = np.zeros(WIDTH, np.float32)
            case "MultiHeadAttentionSpec":
                _fill(child, drawn)
                if len(child.linear) == 2:  # of queries, keys and values together
                    _draw(child.linear[0], drawn, 3 * WIDTH)
                else:  # of keys and values
                    _draw(child.linear[1], drawn, 2 * WIDTH)
            case _ if hasattr(child, "__dict__"):
                _fill(child, drawn)
            case _:
                pass


def _draw(linear: Any, drawn: np.random.Generator, rows: int) -> None:
    linear.weight = drawn.normal(0, 0.5, (rows, WIDTH)).astype(np.float32)
    linear.bias = np.zeros(rows, np.float32)
