"""Estimate of the memory of decoded JSON. The text is no measure: its two bytes ``[]`` become 72."""

from __future__ import annotations

from sys import getsizeof
from typing import Any, cast

import msgspec
from msgspec import Struct

MOST_WALKED = 10_000
"""Values that are looked at one by one, which takes 5 ms of the event loop. The tools of a session have fewer."""
_MOST_PER_BYTE = 36
"""Maximum bytes of memory for a byte of JSON text: ``{"":{}},`` takes 272."""
_OVERHEAD = 8
"""Bytes that the allocator adds to an object, on average."""
_SHARED = range(-5, 257)
"""Integers that the interpreter stores only once."""


def held_size(value: Any) -> int:
    """Return the approximate bytes of a value that was decoded from JSON, with structs of msgspec in it.

    The decoder shares short keys among objects, so each key object is counted once. More than ``MOST_WALKED`` values
    count as the most that their text can take.
    """
    total = walked = 0
    keys = dict[int, str]()
    level = [value]
    while level:
        walked += len(level)
        if walked > MOST_WALKED:
            return _MOST_PER_BYTE * len(msgspec.json.encode(value))
        inner = list[Any]()
        for one in level:
            match one:
                case None | bool():
                    continue
                case int() if one in _SHARED:
                    continue
                case dict():
                    tree = cast("dict[str, Any]", one)
                    keys.update((id(key), key) for key in tree)
                    inner.extend(tree.values())
                case list() | tuple():
                    inner.extend(cast("list[Any]", one))
                case Struct():
                    inner.extend(getattr(one, name) for name in one.__struct_fields__)
                case _:
                    pass
            total += getsizeof(one) + _OVERHEAD
        level = inner
    return total + sum(getsizeof(key) + _OVERHEAD for key in keys.values())
