"""The words of a session: text tokens to pieces of text, as they come."""

from __future__ import annotations

import codecs
import re

from tokenizers import Tokenizer

from engine.worker.text.sentencepiece_file import SPACE

WORDLESS = 4
"""The first ids have no text: the end of padding, the beginning and the end of a text, and padding."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class WordPieces:
    """Turns one token after the other into text. Bytes of a character wait for its last one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = False

    def __call__(self, token: int) -> str:
        """Return the text that a token adds; empty for padding."""
        piece = self._tokenizer.id_to_token(token) if token >= WORDLESS else None
        if not piece:
            return ""
        byte = _BYTE.fullmatch(piece)
        if byte:
            text = self._bytes.decode(bytes.fromhex(byte[1]))
        else:
            text = self._bytes.decode(b"", final=True) + piece.replace(SPACE, " ")
            self._bytes.reset()
        text = text if self._begun else text.lstrip()
        self._begun = self._begun or bool(text)
        return text
