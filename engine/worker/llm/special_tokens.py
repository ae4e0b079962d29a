"""Special tokens of a model in texts that clients write.

Libraries tokenize a rendered prompt as a whole, so a client's text that contains a special token, such as the end of a
turn, would become that token. ``broken_up`` prevents this: the text stays readable, but is ordinary text for the model.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

SEPARATOR = "\u200b"
"""A zero-width space, which no special token contains."""
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Token types of GGUF files. User-defined tokens also contain ordinary text."""
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY, _INT32 = 8, 9, 5
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


def tokens_of_gguf(path: Path, template: str) -> list[str]:
    """Return the special tokens of a GGUF file whose header was checked: control tokens, and those in the template."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        words, kinds = _vocabulary(data)
    named = zip(words, kinds, strict=False)
    return [
        word for word, kind in named if kind in (_UNKNOWN, _CONTROL) or (kind == _USER_DEFINED and word in template)
    ]


def tokens_of_checkpoint(folder: Path, template: str) -> list[str]:
    """Return the special tokens of a checkpoint's ``tokenizer.json``: control tokens, and those in the template."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        return []
    added = msgspec.json.decode(file.read_bytes()).get("added_tokens", [])
    words = {one["content"]: bool(one.get("special")) for one in added if one["content"].strip()}
    return [word for word, special in words.items() if special or word in template]


def _vocabulary(data: mmap.mmap) -> tuple[list[str], list[int]]:
    words: list[str] = []
    kinds: list[int] = []
    for name, kind, count, at in _arrays(data):
        if name == "tokenizer.ggml.tokens" and kind == _STRING:
            words = [data[start:end].decode("utf-8", "replace") for start, end in _strings(data, at, count)]
        elif name == "tokenizer.ggml.token_type" and kind == _INT32:
            kinds = list(struct.unpack_from(f"<{count}i", data, at))
    return words, [kind if words[n].strip() else 0 for n, kind in enumerate(kinds[: len(words)])]


def _arrays(data: mmap.mmap) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, element type, length and position of each array among the keys."""
    (keys,) = struct.unpack_from("<Q", data, 16)
    at = 24
    for _ in range(keys):
        [(start, end)] = _strings(data, at, 1)
        name = data[start:end].decode("utf-8", "replace")
        (kind,) = struct.unpack_from("<I", data, end)
        at = end + 4
        if kind == _ARRAY:
            element, count = struct.unpack_from("<IQ", data, at)
            yield name, element, count, at + 12
            at = _end(data, at + 12, element, count)
        else:
            at = _end(data, at, kind, 1)


def _end(data: mmap.mmap, at: int, kind: int, count: int) -> int:
    if kind != _STRING:
        return at + _SIZES[kind] * count
    for _, end in _strings(data, at, count):
        at = end
    return at


def _strings(data: mmap.mmap, at: int, count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", data, at)
        yield at + 8, at + 8 + length
        at += 8 + length
