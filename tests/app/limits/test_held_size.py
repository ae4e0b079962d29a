"""The estimated size of decoded JSON matches its memory for every shape that a client may send."""

from __future__ import annotations

import json
import tracemalloc
from sys import getsizeof
from typing import Any

import msgspec
import pytest

from app.limits import held_size as module
from app.limits.held_size import held_size
from app.realtime.protocol import SessionOptions, session_options

N = 1000
SHAPES: dict[str, Any] = {
    "lists": [[]] * N,
    "dicts": [{}] * N,
    "small dicts": [{"a": 1}] * N,
    "dicts of six": [{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}] * N,
    "long keys": [{"x" * 60: 1}] * N,
    "many keys": {f"key {n}": None for n in range(N)},
    "dicts with keys of their own": [{f"key {n}": 1} for n in range(N)],
    "small numbers": [1] * N,
    "numbers": [100_000] * N,
    "fractions": [1.5] * N,
    "truths": [True, None] * N,
    "letters": ["x"] * N,
    "words": ["four"] * N,
    "accents": ["été"] * N,
    "a text": "x" * N * 10,
    "a text of emoji": "😀" * N,
    "deep lists": [[[[[[]]]]]] * N,
    "lists of one": [[0]] * N,
    "a tool": [{"type": "function", "name": f"tool {n}", "parameters": {"type": "object"}} for n in range(N)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_size_is_right_within_half(name: str) -> None:
    text = json.dumps(SHAPES[name]).encode()
    tracemalloc.start()
    value = msgspec.json.decode(text)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken / 1.5 < held_size(value) < taken * 1.5


@pytest.mark.parametrize("text", ["[]", '{"":{}}', '{"":0}', "1.5", '"été"', '{"a":[{"":{}}]}'])
def test_many_values_count_as_the_most_that_they_can_take(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at each of them had kept the event loop busy for 100 ms."""
    looked_at = list[object]()
    monkeypatch.setattr(module, "getsizeof", lambda one: looked_at.append(one) or getsizeof(one))
    tracemalloc.start()
    value = msgspec.json.decode(f"[{','.join([text] * 40_000)}]")
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_size(value) > taken / 1.1
    assert len(looked_at) <= module.MOST_WALKED


def test_structs_count_with_what_they_hold() -> None:
    tools = [{"type": "function", "name": "look", "parameters": {"x": [[]] * 1000}}]
    small = held_size(SessionOptions())
    large = held_size(session_options(SessionOptions(), {"tools": tools})[0])
    assert 0 < small < 10_000
    assert large - small > 1000 * 8
