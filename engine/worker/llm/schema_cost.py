"""Limits on tool schemas, because llama.cpp compiles them to a grammar and cannot stop doing so.

The time of that grows with the cube of an object's optional properties: 800 take 1.2 s, 3000 a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.errors import RequestError

MOST_OPTIONAL = 400
"""Optional properties of one object, if it is the only one: about 0.15 s. The cubes of several objects add up."""
MOST_NODES = 20_000
MOST_DEPTH = 64
MOST_REPEATED = 1_000_000
"""Maximum product of nested length limits, such as ``maxItems``."""
_REPEATS = ("maxItems", "minItems", "maxLength", "minLength")


def check_schemas(body: Mapping[str, Any]) -> None:
    """Raise RequestError if the tools of a request would take too long to compile."""
    schemas = [tool.get("function", {}).get("parameters") for tool in body.get("tools", ())]
    cubes = 0
    for nodes, (node, depth, repeated) in enumerate(_nodes(schemas)):
        cubes += _optional(node) ** 3
        if nodes > MOST_NODES:
            raise RequestError(f"The tools' schemas are too large: they have more than {MOST_NODES} values.")
        if depth > MOST_DEPTH:
            raise RequestError(f"The tools' schemas are nested too deeply: the limit is {MOST_DEPTH} levels.")
        if repeated > MOST_REPEATED:
            raise RequestError("The tools' schemas allow too many repetitions: lower maxItems or maxLength.")
        if cubes > MOST_OPTIONAL**3:
            raise RequestError(
                f"The tools' schemas have too many optional properties: the limit is {MOST_OPTIONAL} in one object. "
                "Make some required, or offer fewer tools."
            )


def _nodes(root: Any) -> Iterator[tuple[Any, int, int]]:
    """Yield all values below ``root`` with their depth and the product of the repetitions around them."""
    left = [(root, 0, 1)]
    while left:
        value, depth, repeated = left.pop()
        if isinstance(value, dict):
            node: dict[str, Any] = value
            repeated *= max(1, *(count for name in _REPEATS if isinstance(count := node.get(name), int)), 1)
            left += [(one, depth + 1, repeated) for one in node.values()]
        elif isinstance(value, list):
            left += [(one, depth + 1, repeated) for one in value]
        yield value, depth, repeated


def _optional(value: Any) -> int:
    """Return the number of optional properties, if the value is an object's schema."""
    if not isinstance(value, dict):
        return 0
    node: dict[str, Any] = value
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, dict):
        return 0
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set[str]()
    return sum(1 for name in properties if name not in needed)
