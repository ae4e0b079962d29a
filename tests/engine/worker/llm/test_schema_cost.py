"""Schemas that would take too long to compile are refused in one sentence; ordinary ones pass."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import RequestError
from engine.worker.llm.schema_cost import MOST_DEPTH, MOST_OPTIONAL, check_schemas


def body(*schemas: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}} for schema in schemas]}


def properties(count: int, required: bool = False) -> dict[str, Any]:
    names = [f"p{n}" for n in range(count)]
    return {"type": "object", "properties": {name: {} for name in names}, "required": names if required else []}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def repeated(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(times):
        schema = {"type": "array", "items": schema, "maxItems": 1000}
    return schema


COSTLY = {
    "optional properties": body(properties(6000)),
    "just too many": body(properties(MOST_OPTIONAL + 1)),
    "in several tools": body(*[properties(MOST_OPTIONAL // 2)] * 9),
    "deep within": body({"anyOf": [{"properties": {"a": properties(3000)}}]}),
    "in definitions": body({"$defs": {"a": properties(3000)}, "$ref": "#/$defs/a"}),
    "all required": body(properties(20_000, required=True)),
    "an enumeration": body({"enum": [f"v{n}" for n in range(20_000)]}),
    "depth": body(nested(MOST_DEPTH + 1)),
    "repetitions": body(repeated(3)),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_schema_that_costs_too_much_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=r"^The tools' schemas .*\.$"):
        check_schemas(COSTLY[name])


@pytest.mark.parametrize(
    "asked",
    [
        {},
        body(None),
        body(*[properties(20)] * 100),
        body(properties(200)),
        body(properties(2000, required=True)),
        body({"properties": ["odd"], "required": 7, "maxItems": "many"}),
        body(repeated(1), nested(20)),
    ],
)
def test_an_ordinary_schema_passes(asked: dict[str, Any]) -> None:
    check_schemas(asked)
