"""Moonshine's table of tokens, from the file that its publisher has."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from engine.errors import WeightsError
from engine.worker.asr.moonshine_tokens import moonshine_tokens

MARKS = [b"<unk>", b"<s>", b"</s>"]


def tokenizer_bin(path: Path, tokens: list[bytes]) -> Path:
    """Write tokens as Moonshine AI publishes them."""
    lengths = [bytes([n]) if n < 128 else bytes([128 + n % 128, n // 128]) for n in map(len, tokens)]
    path.write_bytes(b"".join(length + token for length, token in zip(lengths, tokens, strict=True)))
    return path


def test_tokens_have_their_numbers_and_spaces(tmp_path: Path) -> None:
    tokens = [*MARKS, "▁hello".encode(), b"\x00", b"x" * 127, b"y" * 128, b"z" * 300, "é".encode()]
    lines = moonshine_tokens(tokenizer_bin(tmp_path / "tokenizer.bin", tokens)).splitlines()
    assert [line.split()[1] for line in lines] == [f"{n}" for n in range(len(tokens))]
    read = [base64.b64decode(line.split()[0]) for line in lines]
    assert read == [*MARKS, b" hello", *tokens[4:]]


@pytest.mark.parametrize(
    "data",
    [b"", b"\x05<unk", b"\x05<unk>\x03<s>\x04</s>\x81", b"\x05hello", b"PK\x03\x04" * 20],
    ids=lambda data: str(data[:20]),
)
def test_another_file_is_refused_in_one_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=r"is not a Moonshine tokenizer or is incomplete\. Download it again"):
        moonshine_tokens(path)


def test_a_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is not a Moonshine tokenizer"):
        moonshine_tokens(tmp_path)
