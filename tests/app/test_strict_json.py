"""JSON from clients: what is taken can be told again, around as much as is told around it."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.strict_json import MAX_DEPTH, BadJson, decode


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated"),
        ("NaN", "malformed"),
        ('"\\ud800"', "truncated"),
        ("1e400", "out of range"),
        (b'"\xff"', "utf-8"),
        (str(2**64), "more than 64 bits"),
        (str(-(2**63) - 1), "more than 64 bits"),
        ('{"a":[%s]}' % 10**30, "more than 64 bits"),
        (nested(MAX_DEPTH + 1), "more than 100 levels"),
        ("[" * 100_000, "more than 100 levels"),
    ],
)
def test_what_cannot_be_told_is_not_taken(text: str | bytes, why: str) -> None:
    with pytest.raises(BadJson, match=why):
        decode(text)


@pytest.mark.parametrize("text", [nested(MAX_DEPTH), str(2**64 - 1), str(-(2**63)), "1e300", '"\\ud83d\\ude00"'])
def test_what_is_at_the_limit_is_taken(text: str) -> None:
    assert decode(text) == msgspec.json.decode(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(JSON)
def test_whatever_is_taken_can_be_told_within_an_event_and_cross_to_a_worker(value: object) -> None:
    try:
        taken = decode(msgspec.json.encode(value))
    except (BadJson, UnicodeError):
        return
    for _ in range(50):  # far more than an event puts around it
        taken = {"within": taken}
    assert orjson.loads(orjson.dumps(taken))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(taken)) == taken
