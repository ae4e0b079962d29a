"""Special tokens of a model in texts that clients write.

Libraries tokenize a rendered prompt as a whole, so a client's text that contains a special token, such as the end of a
turn, would become that token. ``broken_up`` prevents this: the text stays readable, but is ordinary text for the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import WeightsError
from engine.worker.llm.gguf import read_vocabulary

SEPARATOR = "\u200b"
"""A zero-width space, which no special token contains."""
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Token types of GGUF files. User-defined tokens also contain ordinary text."""
_DATA = frozenset(["url", "data"])
"""Fields that hold images and audio in base64."""

Break = Callable[[str], str]


def breaker(tokens: Iterable[str]) -> Break:
    """Return a function that breaks up all of these tokens in a text."""
    longest = sorted(set(tokens), key=len, reverse=True)
    if not longest:
        return lambda text: text
    found = re.compile("|".join(map(re.escape, longest)))

    def broken(text: str) -> str:
        while (changed := found.sub(_separated, text)) != text:
            text = changed
        return text

    return broken


def _separated(token: re.Match[str]) -> str:
    return token[0][:1] + SEPARATOR + token[0][1:]


def broken_up(body: Mapping[str, Any], broken: Break) -> dict[str, Any]:
    """Return a chat completion's body with the tokens in all texts of messages and tools broken up."""
    texts = {name: _tree(body[name], broken) for name in ("messages", "tools") if name in body}
    return {**body, **texts}


def _tree(value: Any, broken: Break) -> Any:
    match value:
        case str():
            return broken(value)
        case dict():
            tree: dict[str, Any] = value
            return {broken(name): one if name in _DATA else _tree(one, broken) for name, one in tree.items()}
        case list():
            items: list[Any] = value
            return [_tree(one, broken) for one in items]
        case _:
            return value


class _AddedToken(msgspec.Struct):
    content: str
    special: bool = False


class _Tokenizer(msgspec.Struct):
    added_tokens: list[_AddedToken] | None = None


def tokens_of_gguf(path: Path, template: str) -> list[str]:
    """Return the special tokens of a GGUF file: control tokens, and those in the template."""
    return [
        word
        for word, kind in read_vocabulary(path)
        if word.strip() and (kind in (_UNKNOWN, _CONTROL) or (kind == _USER_DEFINED and word in template))
    ]


def is_control(path: Path, word: str) -> bool:
    """Return whether a text is a control token of a GGUF file, which answers do not contain."""
    return (word, _CONTROL) in read_vocabulary(path)


def tokens_of_checkpoint(folder: Path, template: str) -> list[str]:
    """Return the special tokens of a checkpoint's ``tokenizer.json``: control tokens, and those in the template.

    Raises WeightsError for a damaged file.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return []
    try:
        tokenizer = msgspec.json.decode(file.read_bytes(), type=_Tokenizer)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WeightsError(f"{file}: cannot be read: {error}. Download it again.") from None
    words = {token.content: token.special for token in tokenizer.added_tokens or () if token.content.strip()}
    return [word for word, special in words.items() if special or word in template]
