"""Reader of Moonshine's `tokenizer.bin`: a sequence of tokens, each stored as its length and its UTF-8 bytes.

A length below 128 takes one byte. A longer one takes two bytes: the low 7 bits with the high bit set, then the number
of multiples of 128.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from engine.errors import WeightsError

_SPACE = "▁".encode()


def moonshine_tokens(path: Path) -> str:
    """Return the tokens in sherpa-onnx's `tokens.txt` format: one line per token, with its base64 bytes and its id.

    Raises WeightsError if the file cannot be read, is truncated, or has another format.
    """
    try:
        tokens = [token.replace(_SPACE, b" ") for token in _tokens(path.read_bytes())]
        begins_as_published = tokens[1:3] == [b"<s>", b"</s>"]
    except (OSError, IndexError, ValueError) as error:
        raise WeightsError(f"{path} is not a Moonshine tokenizer or is incomplete. Download it again.") from error
    if not begins_as_published:
        raise WeightsError(f"{path} is not a Moonshine tokenizer or is incomplete. Download it again.")
    return "".join(f"{base64.b64encode(token).decode()} {number}\n" for number, token in enumerate(tokens))


def _tokens(data: bytes) -> Iterator[bytes]:
    """Yield the tokens. Raises IndexError or ValueError if the data ends within a token."""
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length >= 128:
            length = length - 128 + 128 * data[at]
            at += 1
        if at + length > len(data):
            raise ValueError("the last token is truncated")
        yield data[at : at + length]
        at += length
