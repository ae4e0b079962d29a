"""Estimate of the memory of decoded JSON. The text is no measure: its two bytes ``[]`` become 72."""

from __future__ import annotations

from sys import getsizeof
from typing import Any, cast

from msgspec import Struct

_OVERHEAD = 8
"""Bytes that the allocator adds to an object, on average."""
_SHARED = range(-5, 257)
"""Integers that the interpreter stores only once."""


def held_size(value: Any) -> int:
    """Return the approximate bytes of a value that was decoded from JSON, with structs of msgspec in it.

    The decoder shares short keys among objects, so each key object is counted once.
    """
    total, keys = 0, dict[int, str]()
    level = [value]
    while level:
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
