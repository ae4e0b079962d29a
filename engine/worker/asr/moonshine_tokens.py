"""Reader of Moonshine's `tokenizer.bin`: all tokens, each as its length and its UTF-8 bytes.

A length below 128 is one byte. A longer one is two bytes: the low 7 bits with the highest bit set, then the multiples
of 128.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from engine.errors import WeightsError

_SPACE = "▁".encode()


def moonshine_tokens(path: Path) -> str:
    """Return the tokens as a `tokens.txt` of sherpa-onnx: a line for each, with the token in base64 and its number.

    Raises WeightsError for a file that cannot be read, is cut off, or is not such a file.
    """
    try:
        tokens = [token.replace(_SPACE, b" ") for token in _tokens(path.read_bytes())]
        begins_as_published = tokens[1:3] == [b"<s>", b"</s>"]
    except (OSError, IndexError, ValueError) as error:
        raise WeightsError(f"{path} is not a tokenizer of Moonshine, or is incomplete: fetch it again.") from error
    if not begins_as_published:
        raise WeightsError(f"{path} is not a tokenizer of Moonshine, or is incomplete: fetch it again.")
    return "".join(f"{base64.b64encode(token).decode()} {number}\n" for number, token in enumerate(tokens))


def _tokens(data: bytes) -> Iterator[bytes]:
    """Raises IndexError or ValueError where the data end within a token."""
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length >= 128:
            length = length - 128 + 128 * data[at]
            at += 1
        if at + length > len(data):
            raise ValueError("the last token is cut off")
        yield data[at : at + length]
        at += length
