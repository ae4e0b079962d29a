"""JSON from clients: RFC 8259, without the values that could be taken and then not be written again.

No NaN, no Infinity, no lone surrogates, no integer beyond 64 bits, and no nesting beyond MAX_DEPTH: settings are sent
again within events, and cross to the workers. What fails there would fail after the state has changed. The number of
values is known before any is made.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import orjson

MAX_DEPTH = 100
"""Levels of objects and lists: a tool's schema has a dozen. The encoder stops at 254, with all that is around it."""

MAX_VALUES = 100_000
"""Numbers, texts, lists and objects of one message: read within some 40 ms, during which the server does nothing else.
Two thousand items of a conversation, or a hundred tools with deep schemas, have a tenth of it."""

_ENCODER_DEPTH = 254
_BLOCK = 1 << 20


class BadJson(ValueError):
    """The error of bad JSON: what is wrong, as the end of a sentence without its full stop."""


def decode(text: str | bytes) -> Any:
    """Decode what a client sent. Raises BadJson."""
    try:
        # Of megabytes that are not ASCII msgspec would make bytes itself, and all that in one piece.
        data = text if isinstance(text, bytes) or text.isascii() else text.encode()
        if len(data) > MAX_VALUES:
            _check_values(data)
        found = msgspec.json.decode(data)
    except RecursionError:
        raise BadJson(_DEEP) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadJson(str(error)) from None
    (_check if len(data) <= MAX_VALUES else _walk)(found)
    return found


def _check_values(data: str | bytes) -> None:
    """Raise BadJson if there may be too many values: each but the first stands behind a bracket, brace or comma.

    Those within texts are counted, too: a text with as many is none that a model's context holds.
    """
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(data, str) else (b",", b"[", b"{")
    values = 0
    for at in range(0, len(data), _BLOCK):
        values += sum(data.count(mark, at, at + _BLOCK) for mark in marks)
        if values > MAX_VALUES:
            raise BadJson(f"it holds more than {MAX_VALUES} values")


def _check(found: Any) -> None:
    """Tell it as deep within other levels as it ever could be. Raises BadJson."""
    if isinstance(found, dict) and all(isinstance(one, str) for one in cast("dict[str, Any]", found).values()):
        return  # sound comes so, every 20 ms and by the megabyte: it is flat, and holds no number
    for _ in range(_ENCODER_DEPTH - MAX_DEPTH):
        found = [found]
    try:
        orjson.dumps(found)
    except TypeError as error:
        raise BadJson(_LARGE if "64-bit" in str(error) else _DEEP) from None


def _walk(found: Any) -> None:
    """The same of what is long: to tell megabytes of text would hold the interpreter up. Raises BadJson."""
    level, depth = [found], 0
    while level:
        if any(isinstance(one, int) and not -(1 << 63) <= one < 1 << 64 for one in level):
            raise BadJson(_LARGE)
        nested = [one for one in level if isinstance(one, (dict, list))]
        depth += bool(nested)
        if depth > MAX_DEPTH:
            raise BadJson(_DEEP)
        level = [one for outer in nested for one in (outer.values() if isinstance(outer, dict) else outer)]


_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
_LARGE = "an integer in it has more than 64 bits"


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Merge ``change`` into ``base``, at any depth."""
    both = {name: (base[name], value) for name, value in change.items() if name in base}
    deep = {name: merged(*pair) for name, pair in both.items() if all(isinstance(one, dict) for one in pair)}
    return {**base, **change, **deep}
