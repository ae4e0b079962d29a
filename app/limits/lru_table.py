"""A bounded table that forgets the key that was set longest ago, so that a flood of new clients cannot fill memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruTable(OrderedDict[K, V]):
    """At most ``limit`` keys, ordered by the time at which each was set last."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)
