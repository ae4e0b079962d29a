"""JSON from clients: what is taken can be told again, around as much as is told around it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import strict_json
from app.strict_json import MAX_DEPTH, MAX_VALUES, BadJson, decode


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated|malformed"),
        ("NaN", "malformed"),
        ('"\\ud800"', "truncated|surrogate"),
        ("1e400", "out of range"),
        (b'"\xff"', "utf-8"),
        (str(2**64), "more than 64 bits"),
        (str(-(2**63) - 1), "more than 64 bits"),
        ('{"a":[%s]}' % 10**30, "more than 64 bits"),
        (nested(MAX_DEPTH + 1), "more than 100 levels"),
        ("[" * 100_000, "more than 100 levels"),
    ],
)
@pytest.mark.parametrize("blanks", [0, MAX_VALUES])
def test_what_cannot_be_told_is_not_taken(text: str | bytes, why: str, blanks: int) -> None:
    """A long one neither, which is not told to find that out."""
    with pytest.raises(BadJson, match=why):
        decode(text + " " * blanks if isinstance(text, str) else text + b" " * blanks)


@pytest.mark.parametrize("blanks", [0, MAX_VALUES])
@pytest.mark.parametrize("text", [nested(MAX_DEPTH), str(2**64 - 1), str(-(2**63)), "1e300", '"\\ud83d\\ude00"'])
def test_what_is_at_the_limit_is_taken(text: str, blanks: int) -> None:
    assert decode(text + " " * blanks) == msgspec.json.decode(text)


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


@pytest.mark.fault("I2.1")
@pytest.mark.parametrize("one", ["[]", "{}", "1", '"a"', '{"a":1}', "[[]]", "null"])
def test_too_many_values_are_counted_before_any_is_made(one: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 million lists in 16 MB took two seconds, in which nobody was heard."""
    made: list[Any] = []
    whole = msgspec.json.decode
    monkeypatch.setattr(msgspec.json, "decode", lambda text: made.append(text) or whole(text))
    few = "[" + ",".join([one] * (MAX_VALUES // 4)) + "]"
    assert len(decode(few)) == MAX_VALUES // 4
    many = "[" + ",".join([one] * (MAX_VALUES + 1)) + "]"
    for text in (many, many.encode()):
        with pytest.raises(BadJson, match=f"more than {MAX_VALUES} values"):
            decode(text)
    assert len(made) == 1


def test_a_long_sound_is_few_values() -> None:
    sound = "A" * 16_000_000
    assert decode('{"audio":"' + sound + '"}') == {"audio": sound}


def test_twenty_tools_with_deep_schemas_are_few_values() -> None:
    schema: dict[str, Any] = {"type": "string", "description": "A word, a phrase, or {both}."}
    for depth in range(20):
        schema = {"type": "object", "properties": {f"a{n}": schema if n == 0 else {} for n in range(20)}, "x": depth}
    tools = [{"type": "function", "name": f"t{n}", "parameters": schema} for n in range(20)]
    assert decode(json.dumps(tools)) == tools


@pytest.mark.parametrize("marks", [",", "[", "{", ",[{"])
def test_values_are_counted_across_blocks(marks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "_BLOCK", 1000)
    with pytest.raises(BadJson, match="values"):
        decode('"' + (" " * 7 + marks) * (MAX_VALUES + 1) + '"')
