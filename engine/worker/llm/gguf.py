"""Header of a GGUF file: model, chat template and memory needs.

The ``gguf`` package reads headers too, but takes twelve seconds for a vocabulary of 150,000 words, which is not needed
here. Source: ggml's docs/gguf.md, version 3; key names from llama.cpp's gguf-py/gguf/constants.py.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import SEEK_CUR
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import WeightsError

MAGIC, VERSIONS = b"GGUF", (2, 3)
PROJECTOR = "clip"
"""Architecture of projector files, which convert pictures and audio to model input."""

_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST_ARRAY = 4096
"""Maximum length of stored number arrays. Longer ones belong to vocabularies; those with a number per layer are
kept.
"""
_WORDS, _WORD_TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
_MOST_KEYS = 1024
_MOST_ENTRIES = 1 << 21
"""Maximum number of words and tensors, about three times as many as the largest models have. Each costs a
microsecond, and in a sparse file it takes no bytes on the disk."""
_LONGEST_KEY = 65_535
_LONGEST_WORD = 256
"""Maximum bytes of a word that may be a marker."""
_TEXTS = {"general.architecture": 64, "tokenizer.chat_template": 1 << 20}
"""Texts that are kept, with their maximum bytes."""
_NUMBERS = {
    "context_length": 1 << 31, "block_count": 4096, "embedding_length": 1 << 20, "attention.head_count": 1 << 16,
    "attention.head_count_kv": 1 << 16, "attention.key_length": 1 << 16, "attention.value_length": 1 << 16,
    "attention.sliding_window": 1 << 31,
}  # fmt: skip
"""Numbers that are used, and their maximum. Their keys follow the architecture's name."""
_PER_LAYER = ("attention.head_count", "attention.head_count_kv")
"""Numbers that may be a list with one for each layer."""
_ALIGNMENTS = tuple(1 << n for n in range(3, 21))
_MARKER = re.compile(r"<\|(?!\w*(?:tool|call|func|python|think))[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]")
"""A chat template's marker between turns, such as "<|im_end|>", excluding markers of tool calls and reasoning."""
_DAMAGED = "Download the file again, or use another conversion of the model."
_PART = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a model file."""

    path: Path
    size: int
    """Size in bytes, including all parts of a split file."""
    fields: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        return self.fields.get("general.architecture", "")

    @property
    def name(self) -> str:
        """Display name: the file's name without its ending.

        The header's ``general.name`` often names a training run or a base model instead.
        """
        found = _PART.fullmatch(self.path.name)
        return found["stem"] if found else self.path.stem

    @property
    def template(self) -> str:
        """Chat template (Jinja), or "" if the file has none."""
        return self.fields.get("tokenizer.chat_template", "")

    def foreign_markers(self, template: str) -> list[str]:
        """Return the template's markers that are not tokens of the model, which therefore writes them as plain text."""
        known = self.fields.get(_WORDS) or ()
        return [marker for marker in dict.fromkeys(_MARKER.findall(template)) if marker not in known]

    @property
    def context(self) -> int:
        """Maximum tokens of prompt and answer in training, or 0 if unknown."""
        return self._of("context_length", 0)

    def reads(self, what: str) -> bool:
        """Return whether a projector supports "vision" or "audio"."""
        return bool(self.fields.get(f"clip.has_{what}_encoder", False))

    def cache_bytes(self, tokens: int, value_bytes: float) -> int:
        """Return the minimum bytes of keys and values for a number of tokens, assuming the shortest attention window of
        any layer.
        """
        layers = self._of("block_count", 0)
        heads = _per_layer(self._of("attention.head_count", 1), layers)
        kv_heads = _per_layer(self._of("attention.head_count_kv", heads), layers)
        own = self._of("embedding_length", 0) // max(1, max(heads, default=1))
        width = self._of("attention.key_length", own) + self._of("attention.value_length", own)
        held = min(tokens, self._of("attention.sliding_window", 0) or tokens)
        return round(sum(kv_heads) * width * held * value_bytes)

    def logits_bytes(self, tokens: int) -> int:
        """Return the bytes of the logits of a step with that number of tokens: a float32 for each word of the model's
        vocabulary. They are the largest buffer that llama.cpp computes with. 0 if the file has no vocabulary size.
        """
        return tokens * self._of("vocab_size", 0) * 4

    def _of(self, key: str, otherwise: Any) -> Any:
        return self.fields.get(f"{self.architecture}.{key}", otherwise)


def read_header(path: Path) -> Header:
    """Read a model file's header. Raises WeightsError for another format or version, or a truncated file."""
    try:
        stat = path.stat()
    except OSError:
        raise WeightsError(f"{path}: the file does not exist") from None
    if not path.is_file():
        raise WeightsError(f"{path}: must be a GGUF file, not a folder")
    return _read(path, stat.st_size, stat.st_mtime_ns)


def read_vocabulary(path: Path) -> list[tuple[str, int]]:
    """Return the words of a model's vocabulary with their token types. Raises WeightsError for a damaged file."""
    with path.open("rb") as file:
        reader = _Reader(file, path, path.stat().st_size, whole=frozenset((_WORDS, _WORD_TYPES)))
        _, keys = _counts(reader)
        fields = dict(reader.field() for _ in range(keys))
    return list(zip(fields.get(_WORDS, ()), fields.get(_WORD_TYPES, ()), strict=False))


def is_first(path: Path) -> bool:
    """Return whether a file is a model, and not a later part of a split one."""
    found = _PART.fullmatch(path.name)
    return found is None or int(found["part"]) == 1


@lru_cache(maxsize=8)
def _read(path: Path, size: int, _changed_ns: int) -> Header:
    """Read a header; cached, because startup reads it several times."""
    try:
        with path.open("rb") as file:
            return Header(path, sum(_sizes(path, size)), _fields(_Reader(file, path, size)))
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror}") from None


def _sizes(path: Path, size: int) -> list[int]:
    """Return the sizes of all parts of a file. Raises WeightsError if one is missing."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [size]
    count = int(found["count"])
    parts = [path.with_name(f"{found['stem']}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise WeightsError(f"{path}: is one of {count} parts, but {missing[0]} is missing from the folder")
    if path != parts[0]:
        raise WeightsError(f"{path}: is one of {count} parts. Name the first one, {parts[0].name}")
    return [part.stat().st_size for part in parts]


def _fields(reader: _Reader) -> dict[str, Any]:
    """Return all keys (of vocabularies only the markers), and check that the file contains all tensors."""
    tensors, keys = _counts(reader)
    fields = dict(reader.field() for _ in range(keys))
    _check(reader.path, fields)
    reader.expect(tensors)
    last = max((reader.tensor() for _ in range(tensors)), default=None)
    if last is not None:  # the first part of a split file may have no tensors
        alignment = fields.get("general.alignment", 32)
        if -reader.at % alignment + reader.at + last >= reader.size:
            raise reader.cut()
    return fields


def _counts(reader: _Reader) -> tuple[int, int]:
    """Read the beginning of a file, and return its numbers of tensors and keys."""
    if reader.bytes(4) != MAGIC:
        raise WeightsError(f"{reader.path}: is not a GGUF file")
    version = reader.number("I")
    if version not in VERSIONS:
        raise WeightsError(
            f"{reader.path}: has GGUF version {version}; llama.cpp supports {' and '.join(map(str, VERSIONS))}. "
            "Download a newer conversion of the model."
        )
    tensors, keys = reader.number("Q"), reader.number("Q")
    if keys > _MOST_KEYS:
        raise reader.cut()
    return tensors, keys


def _check(path: Path, fields: Mapping[str, Any]) -> None:
    """Raise WeightsError unless every value that is used has the right type and range."""
    for key, most in _TEXTS.items():
        if not isinstance(fields.get(key, ""), str):
            raise WeightsError(f"{path}: {key} must be text of at most {most} bytes. {_DAMAGED}")
    if fields.get("general.alignment", 32) not in _ALIGNMENTS:
        raise WeightsError(f"{path}: general.alignment must be a power of two from 8 to {_ALIGNMENTS[-1]}. {_DAMAGED}")
    for name, most in _NUMBERS.items():
        key = f"{fields.get('general.architecture', '')}.{name}"
        value = fields.get(key, 0)
        numbers: list[Any] = value if name in _PER_LAYER and isinstance(value, list) else [value]
        if not all(type(one) is int and 0 <= one <= most for one in numbers):
            raise WeightsError(f"{path}: {key} must be a whole number from 0 to {most}. {_DAMAGED}")


@dataclass(slots=True)
class _Reader:
    """Sequential reader of a file of known size. Raises WeightsError if the file ends too early."""

    file: BinaryIO
    path: Path
    size: int
    whole: frozenset[str] = frozenset()
    """Keys whose arrays are kept whole."""
    at: int = 0
    entries: int = _MOST_ENTRIES

    def cut(self) -> WeightsError:
        return WeightsError(f"{self.path}: is incomplete or damaged. Download it again.")

    def bytes(self, count: int) -> bytes:
        self._advance(count)
        return self.file.read(count)

    def skip(self, count: int) -> None:
        self._advance(count)
        self.file.seek(count, SEEK_CUR)

    def _advance(self, count: int) -> None:
        self.at += count
        if self.at > self.size:
            raise self.cut()

    def expect(self, entries: int) -> None:
        """Count entries before they are read. Raises WeightsError for more than any model has."""
        self.entries -= entries
        if self.entries < 0:
            raise self.cut()

    def number(self, form: str) -> Any:
        [value] = struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}")))
        return value

    def text(self, most: int) -> str | None:
        """Return a text, or None for one of more than ``most`` bytes, which is skipped."""
        length = self.number("Q")
        if length > most:
            self.skip(length)
            return None
        return self.bytes(length).decode("utf-8", "replace")

    def field(self) -> tuple[str, Any]:
        """Return a key and its value: of a vocabulary, only the markers; None for a value that is not used."""
        key = self.text(_LONGEST_KEY)
        if key is None:
            raise self.cut()
        kind = self.number("I")
        if kind == _STRING:
            return key, self.text(_TEXTS.get(key, 0))
        if kind == _ARRAY:
            return key, self._array(self.number("I"), self.number("Q"), key in self.whole)
        if kind not in _FIXED:
            raise self.cut()
        return key, self.number(_FIXED[kind])

    def _array(self, kind: int, count: int, whole: bool) -> list[Any] | None:
        if kind == _STRING:
            self.expect(count)
            if whole:
                return [self.text(_LONGEST_KEY) or "" for _ in range(count)]
            words = (self.text(_LONGEST_WORD) or "" for _ in range(count))
            return [word for word in words if word[:1] in ("<", "[") and _MARKER.fullmatch(word)]
        if kind not in _FIXED:
            raise self.cut()
        size = count * struct.calcsize(f"<{_FIXED[kind]}")
        if count > _LONGEST_ARRAY and not whole:
            self.skip(size)
            return None
        return list(struct.unpack(f"<{count}{_FIXED[kind]}", self.bytes(size)))

    def tensor(self) -> int:
        """Return a tensor's offset after the header."""
        self.skip(self.number("Q"))  # its name
        self.skip(8 * self.number("I"))  # its shape
        self.skip(4)  # its type
        return self.number("Q")


def _per_layer(value: Any, layers: int) -> list[int]:
    """Return a number per layer, from a list or one number for all layers."""
    return value if isinstance(value, list) else [value] * layers
