"""Reads SentencePiece models (``.model`` files) of the unigram kind as tokenizers of the tokenizers library.

Source: sentencepiece_model.proto of google/sentencepiece.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers

from engine.errors import WeightsError

SPACE = "\u2581"
"""The character that stands for a space in pieces."""
PIECES, TRAINER, NORMALIZER = 1, 2, 3
UNIGRAM = 1
USER_DEFINED = 4
Fields = dict[int, list[Any]]
"""Values of a message by the number of their field."""


def read_sentencepiece(file: Path) -> Tokenizer:
    """Read a model. Raises WeightsError if it cannot be read, or is of another kind."""
    try:
        model = _fields(file.read_bytes())
        pieces = [_fields(piece) for piece in model[PIECES]]
        vocabulary = _scored(pieces)
        trainer, normalizer = _fields(model[TRAINER][0]), _fields(model[NORMALIZER][0])
        if _first(trainer, 3, UNIGRAM) != UNIGRAM:
            raise WeightsError(f"{file}: only unigram models of SentencePiece are supported.")
        made: Any = Tokenizer(models.Unigram(vocabulary, _first(trainer, 40, 0), bool(_first(trainer, 35, 0))))
        made.normalizer = _normalizer(normalizer)
    except OSError:
        raise WeightsError(f"{file} is missing, so the checkpoint is incomplete. Download it again.") from None
    except (ValueError, IndexError, struct.error) as error:
        raise WeightsError(f"{file} is not a SentencePiece model ({error}). Download it again.") from None
    return made


def _scored(pieces: list[Fields]) -> list[tuple[str, float]]:
    """Return the pieces and their scores. Symbols of the user are preferred to any other split of them."""
    found = [(piece[1][0].decode(), _float(piece[2])) for piece in pieces]
    best = max((score for (_, score), piece in zip(found, pieces, strict=True) if _first(piece, 3, 1) == 1), default=0)
    return [
        (word, len(word) * best - 0.1 if _first(piece, 3, 1) == USER_DEFINED else score)
        for (word, score), piece in zip(found, pieces, strict=True)
    ]


def _normalizer(spec: Fields) -> Any:
    steps: list[Any] = []
    if _first(spec, 2, b""):
        steps.append(normalizers.Precompiled(_first(spec, 2, b"")))
    if _first(spec, 4, 1):  # removes extra spaces
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    steps.append(normalizers.Replace(" ", SPACE))
    if _first(spec, 3, 1):  # adds a space before the first word
        steps.append(normalizers.Prepend(SPACE))
    return normalizers.Sequence(steps)


def _fields(data: bytes) -> Fields:
    """Return the fields of a message in protobuf's wire format."""
    found: Fields = defaultdict(list)
    for number, value in _parsed(data):
        found[number].append(value)
    return found


def _parsed(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
            case 2:
                size, at = _varint(data, at)
                value, at = data[at : at + size], at + size
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value, at = data[at : at + size], at + size
            case kind:
                raise ValueError(f"unknown wire type {kind}")
        yield key >> 3, value
    if at > len(data):
        raise ValueError("it is truncated")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _first(fields: Fields, number: int, default: Any) -> Any:
    return fields[number][-1] if fields.get(number) else default


def _float(values: list[bytes]) -> float:
    return struct.unpack("<f", values[-1])[0] if values else 0.0
