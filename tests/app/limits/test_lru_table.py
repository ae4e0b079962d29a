"""The bounded table forgets the key that was set longest ago."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.limits.lru_table import LruTable


def test_setting_a_key_again_keeps_it() -> None:
    table = LruTable[str, int](2)
    table["a"] = 1
    table["b"] = 2
    table["a"] = 3
    table["c"] = 4
    assert dict(table) == {"a": 3, "c": 4}


@given(st.lists(st.integers(0, 9)), st.integers(1, 5))
def test_it_holds_the_last_keys_that_were_set(keys: list[int], limit: int) -> None:
    table = LruTable[int, int](limit)
    for key in keys:
        table[key] = key
    last = list(dict.fromkeys(reversed(keys)))[:limit]
    assert list(table) == last[::-1]
