"""The simple schemas that a JSON schema combines: its alternatives, with references, ``anyOf`` and types resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

from engine.worker.llm.grammar.automaton import Steps
from engine.worker.llm.grammar.located import Located

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
KEYWORDS = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""The keywords of each type. They do not apply to values of other types."""
_SOURCES = ("$ref", "anyOf", "oneOf", "allOf")
_REFUSED = ("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef")
_CONSTRAINTS = frozenset({"type", "enum", "const", *_SOURCES, *(one for some in KEYWORDS.values() for one in some)})
MOST_VALUES = 2000
"""Maximum values of one enum."""
_MOST_STEPS = 64
"""Maximum parts of a reference."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A schema without alternatives. ``type`` is one of TYPES, "enum" for fixed values, or "any"."""

    type: str
    schema: Located

    @property
    def key(self) -> tuple[str, int]:
        """The identity of the leaf within its schema."""
        return self.type, 0 if self.type == "any" else id(self.schema.value)

    @property
    def constants(self) -> list[Any]:
        """The values of ``enum`` or ``const`` that have the schema's type. Raises SchemaError."""
        given = [self.schema.value["const"]] if "const" in self.schema else self.schema.value["enum"]
        types = types_of(self.schema)
        return [value for value in given if not types or any(_is(value, one) for one in types)]


class Leaves:
    """Finds the leaves of the parts of one schema. Its methods raise SchemaError."""

    def __init__(self, root: Located, steps: Steps) -> None:
        self._root = root
        self._steps = steps

    def of(self, schema: Located) -> list[Leaf]:
        """Return the alternatives of a part of the schema; none if no value is valid."""
        return list({leaf.key: leaf for leaf in self._of(schema, set())}.values())

    def _of(self, schema: Located, seen: set[int]) -> Iterator[Leaf]:
        self._steps.spend(schema)
        if isinstance(schema.value, bool):
            yield from [Leaf("any", schema)] if schema.value else []
            return
        if not isinstance(schema.value, dict):
            raise schema.error("must be an object or a boolean")
        schema.refuse(*_REFUSED)
        source = next((name for name in _SOURCES if name in schema), None)
        if source is None:
            yield from _typed(schema)
            return
        _check_alone(schema, source)
        for option in [self._target(schema)] if source == "$ref" else self._options(schema, source):
            if source != "$ref" or id(option.value) not in seen:
                seen.add(id(option.value))
                yield from self._of(option, seen)

    def _options(self, schema: Located, source: str) -> list[Located]:
        options = schema.items(source)
        if not options:
            raise schema.error("must not be empty", source)
        if source == "allOf" and len(options) > 1:
            raise schema.error("with several schemas is not supported. Merge them into one", source)
        if source == "oneOf":
            self._check_distinct(options)
        return options

    def _target(self, schema: Located) -> Located:
        """Return the schema that ``$ref`` names."""
        name = schema.text("$ref") or ""
        steps = name[1:].split("/")[1:]
        if (name != "#" and not name.startswith("#/")) or len(steps) > _MOST_STEPS:
            raise schema.error("only paths within the schema are supported, like #/$defs/name", "$ref")
        found = self._root
        for step in steps:
            key = step.replace("~1", "/").replace("~0", "~")
            value = found.value
            if isinstance(value, dict) and key in value:
                found = found.at(key)
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(cast("list[Any]", value)):
                found = found.at(int(key))
            else:
                raise schema.error(f"{name[:100]!r} names nothing in the schema", "$ref")
        return found

    def _check_distinct(self, options: list[Located]) -> None:
        """Raise SchemaError unless each value is valid for at most one option."""
        found = [self.of(option) for option in options]
        for (n, mine), (_, theirs) in combinations(enumerate(found), 2):
            if not all(self._are_distinct(one, other) for one in mine for other in theirs):
                raise options[n].error(
                    "a value could be valid for another schema of oneOf, too. Use anyOf, or give each schema a "
                    "required property with its own const"
                )

    def _are_distinct(self, one: Leaf, other: Leaf) -> bool:
        self._steps.spend(one.schema)
        if "any" in (one.type, other.type):
            return False
        if one.type == other.type == "object":
            shared = set(one.schema.texts("required")) & set(other.schema.texts("required"))
            return any(_are_disjoint(self.fixed_values(one, name), self.fixed_values(other, name)) for name in shared)
        if "enum" not in (one.type, other.type):
            return one.type != other.type and {one.type, other.type} != {"number", "integer"}
        if one.type == other.type:
            return _are_disjoint(json_texts(one.constants), json_texts(other.constants))
        fixed, free = (one, other) if one.type == "enum" else (other, one)
        return not any(_is(value, free.type) for value in fixed.constants)

    def fixed_values(self, leaf: Leaf, name: str) -> set[str]:
        """Return the JSON texts of a property's fixed values; none if it may have others."""
        properties = leaf.schema.object("properties")
        found = self.of(properties.at(name)) if name in properties else []
        if any(one.type != "enum" for one in found):
            return set()
        values = [value for one in found for value in one.constants]
        for _ in values:
            self._steps.spend(leaf.schema)
        return json_texts(values)

    def are_told_apart(self, objects: Sequence[Leaf]) -> bool:
        """Return whether the first member of an object always shows which of these it is."""
        taken: dict[str, set[str]] = {}
        for leaf in objects:
            for name in _first_names(leaf):
                values = self.fixed_values(leaf, name) if name else set[str]()
                if name in taken and not _are_disjoint(values, taken[name]):
                    return False
                taken[name] = values | taken.get(name, set())
        return True


def _first_names(leaf: Leaf) -> list[str]:
    """Return the properties with which an object may begin; "" if it may be empty or have any names."""
    required = leaf.schema.texts("required")
    names: list[str] = []
    for name in dict.fromkeys((*leaf.schema.object("properties").names(), *required)):
        names.append(name)
        if name in required:
            return names
    return [*names, ""]


def _check_alone(schema: Located, source: str) -> None:
    for key in schema.names():
        if key in _CONSTRAINTS and key != source:
            raise schema.error(f"is not supported together with {source}. Move it into the schemas of {source}", key)


def _typed(schema: Located) -> Iterator[Leaf]:
    types = types_of(schema)
    if "const" in schema or "enum" in schema:
        yield _constant(schema)
        return
    if not types:
        groups = (name for name, keywords in KEYWORDS.items() if any(one in schema for one in keywords))
        types = [next(groups, "any")]
    for one in types:
        yield Leaf(one, schema)


def types_of(schema: Located) -> list[str]:
    """Return the types of a schema; none if it does not restrict them. Raises SchemaError."""
    if "type" not in schema:
        return []
    given = schema.value["type"]
    types = [given] if isinstance(given, str) else schema.texts("type")
    for one in types:
        if one not in TYPES:
            raise schema.error(f"{one[:40]!r} is no type. Use one of {', '.join(TYPES)}", "type")
    if not types:
        raise schema.error("must not be empty", "type")
    return types


def _constant(schema: Located) -> Leaf:
    for key in schema.names():
        if key in _CONSTRAINTS - {"type", "enum", "const"}:
            raise schema.error("is not supported together with enum or const. Remove it", key)
    if "const" in schema and "enum" in schema:
        raise schema.error("is not supported together with const. Remove one of them", "enum")
    if "enum" in schema and not 0 < len(schema.items("enum")) <= MOST_VALUES:
        raise schema.error(f"must have 1 to {MOST_VALUES} values", "enum")
    return Leaf("enum", schema)


def _is(value: Any, type: str) -> bool:
    match type:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case _:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return is_number and (type == "number" or value == int(value))


def json_texts(values: list[Any]) -> set[str]:
    return {json.dumps(value, sort_keys=True) for value in values}


def _are_disjoint(some: set[str], others: set[str]) -> bool:
    return bool(some) and bool(others) and some.isdisjoint(others)
