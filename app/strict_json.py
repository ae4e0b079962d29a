"""JSON from clients: RFC 8259, without values that could be decoded but not encoded again.

Excluded are NaN, Infinity, lone surrogates, integers beyond 64 bits and nesting beyond MAX_DEPTH. Settings are sent
back in events and passed to the workers; encoding them there would fail after the state has changed. The number of
values is checked before any of them is decoded.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
import orjson

MAX_DEPTH = 100
"""Maximum levels of objects and lists. A tool's schema has a dozen; the encoder stops at 254, with all enclosing
levels.
"""

MAX_VALUES = 100_000
"""Maximum number of values in one message. Decoding them takes about 40 ms, during which the server does nothing else.

Two thousand conversation items, or a hundred tools with deep schemas, have a tenth of it.
"""

_ENCODER_DEPTH = 254
_BLOCK = 1 << 20


class BadJson(ValueError):
    """Invalid JSON. The message is the end of a sentence, without a full stop."""


def decode(text: str | bytes) -> Any:
    """Decode JSON from a client. Raises BadJson."""
    try:
        # Given megabytes of non-ASCII text, msgspec would encode them itself in one long call.
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
    """Raise BadJson if there may be too many values, estimated by the number of brackets, braces and commas.

    Characters within strings count too: no model's context could hold a text with as many of them.
    """
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(data, str) else (b",", b"[", b"{")
    values = 0
    for at in range(0, len(data), _BLOCK):
        values += sum(data.count(mark, at, at + _BLOCK) for mark in marks)
        if values > MAX_VALUES:
            raise BadJson(f"it holds more than {MAX_VALUES} values")


def _check(found: Any) -> None:
    """Encode the value at the greatest depth where it could be nested later. Raises BadJson."""
    if isinstance(found, dict) and all(isinstance(one, str) for one in cast("dict[str, Any]", found).values()):
        return  # audio arrives like this, every 20 ms and by the megabyte: flat, and without numbers
    for _ in range(_ENCODER_DEPTH - MAX_DEPTH):
        found = [found]
    try:
        orjson.dumps(found)
    except TypeError as error:
        raise BadJson(_LARGE if "64-bit" in str(error) else _DEEP) from None


def _walk(found: Any) -> None:
    """Check a long value without encoding it, which would block the interpreter. Raises BadJson."""
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
    """Return ``base`` updated recursively with ``change``."""
    both = {name: (base[name], value) for name, value in change.items() if name in base}
    deep = {name: merged(*pair) for name, pair in both.items() if all(isinstance(one, dict) for one in pair)}
    return {**base, **change, **deep}
