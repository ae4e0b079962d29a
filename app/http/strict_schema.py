"""The rules of OpenAI's strict mode for JSON schemas: every property is required, and no others are allowed.

Source: OpenAI's guide on structured outputs, "Supported schemas". Limits that depend on the model are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from app.http_errors import HttpRefusal

CODE = "invalid_json_schema"
MOST_DEPTH = 10
"""Maximum objects within each other."""
MOST_PROPERTIES = 5000
_REFUSED = ("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else")
_ALTERNATIVES = ("anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "$defs", "definitions")

Schema = Mapping[str, Any]


def check_strict(schema: Schema, what: str, param: str) -> None:
    """Raise HttpRefusal if a schema breaks the rules. ``what`` names it in the message."""
    try:
        _check(schema)
    except _Broken as rule:
        raise HttpRefusal(400, CODE, f"Invalid schema for {what}: {rule}", param) from None


class _Broken(Exception):
    """A broken rule: the JSON path, and a sentence."""


def _check(schema: Schema) -> None:
    if schema.get("type") != "object" or "anyOf" in schema:
        raise _Broken("$: its type must be 'object', without anyOf, in strict mode.")
    properties = 0
    left: list[tuple[Schema, str, int]] = [(schema, "$", 0)]
    while left:
        node, path, depth = left.pop()
        if depth > MOST_DEPTH:
            raise _Broken(f"{path[:200]}: more than {MOST_DEPTH} objects are within each other.")
        for name in _REFUSED:
            if name in node:
                raise _Broken(f"{path[:200]}.{name}: is not permitted in strict mode.")
        is_object = "properties" in node or "object" in (node.get("type"), *_list(node.get("type")))
        if is_object:
            properties += len(_map(node.get("properties")))
            _check_object(node, path[:200])
        if properties > MOST_PROPERTIES:
            raise _Broken(f"$: has more than {MOST_PROPERTIES} properties.")
        left += [(one, f"{path}.{step}"[:300], depth + is_object) for step, one in _inner(node)]


def _check_object(node: Schema, path: str) -> None:
    if node.get("additionalProperties") is not False:
        raise _Broken(f"{path}: additionalProperties must be false in strict mode.")
    required = _list(node.get("required"))
    missing = next((name for name in _map(node.get("properties")) if name not in set(map(str, required))), None)
    if missing is not None:
        raise _Broken(
            f"{path}: required must contain {missing!r:.60}, because strict mode requires every property. To make one "
            "optional, allow null as its type."
        )


def _inner(node: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas directly within one, each with its path."""
    for name in _MAPS:
        yield from ((f"{name}.{key}", one) for key, one in _map(node.get(name)).items() if isinstance(one, dict))
    for name in _ALTERNATIVES:
        yield from ((f"{name}[{n}]", one) for n, one in enumerate(_list(node.get(name))) if isinstance(one, dict))
    if isinstance(node.get("items"), dict):
        yield "items", node["items"]


def _map(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
