"""The conversion of a JSON schema to a grammar."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from typing import Any

from engine.errors import SchemaError
from engine.worker.llm.grammar.ambiguity import Ambiguity, LeafGroup
from engine.worker.llm.grammar.automaton import Steps
from engine.worker.llm.grammar.constants import constants_rule
from engine.worker.llm.grammar.free_text import free_text
from engine.worker.llm.grammar.gbnf import Alternative, Grammar, Reference, literal
from engine.worker.llm.grammar.leaves import KEYWORDS, TYPES, Leaf, Leaves
from engine.worker.llm.grammar.located import Located
from engine.worker.llm.grammar.scalars import number_rule, string_rule

_FREE = Located({})
MOST_OPTIONS = 100
"""Maximum optional properties in a row, and maximum alternatives of one schema."""
_OPENINGS = {"object": "{", "array": "[", "any": "any"}


def json_grammar(schema: Mapping[str, Any] | bool) -> str:
    """Return the grammar of a schema's JSON values, as GBNF.

    Raises SchemaError for a schema that is invalid, not supported or too large, or that has no finite value.
    """
    grammar = Grammar()
    text = grammar.written(_Compiler(grammar, Located(schema)).rule())
    if text is None:
        raise SchemaError(
            "JSON schema: no finite value is valid. End each recursion with null, an empty list or an optional member."
        )
    return text


def call_grammar(functions: Iterable[tuple[str, Mapping[str, Any]]], tags: tuple[str, str] | None = None) -> str:
    """Return the grammar of a call of one of the functions, given with the schemas of their arguments.

    A call is an object with ``name`` and ``arguments``. With ``tags``, the grammar is any text, in which a call between
    line breaks and the second tag follows each first tag. Parts of a schema that are not supported allow any value of
    their type. Raises SchemaError for schemas that are too large or have no finite value.
    """
    grammar = Grammar()
    calls: list[Alternative] = []
    for name, parameters in functions:
        arguments = _Compiler(grammar, Located({"type": "object", **parameters}), lenient=True).rule()
        head = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
        calls.append((literal(head), arguments, literal("}")))
    root = call = grammar.rule(*calls)
    if tags is not None:
        root = free_text(tags[0], (literal("\n"), call, literal(f"\n{tags[1]}")), grammar)
    text = grammar.written(root, needed=call)
    if text is None:
        raise SchemaError("The functions' schemas: no finite arguments are valid. End each recursion.")
    return text


class _Compiler:
    """Adds the rules of one schema to a grammar."""

    def __init__(self, grammar: Grammar, root: Located, lenient: bool = False) -> None:
        self._grammar = grammar
        self._root = root
        self._lenient = lenient
        self._steps = Steps()
        self._leaves = Leaves(root, self._steps)
        self._ambiguity = Ambiguity(self._steps)
        self._known: dict[tuple[str, int], Reference] = {}
        self._scalars: dict[tuple[str, ...], tuple[Reference, int]] = {}
        """The rules of strings and numbers by their keywords, with their largest number of alternatives."""
        self._left: list[tuple[Reference, Leaf]] = []
        self._within = dict[Reference, None]()
        """The rules within the leaf that is being defined."""

    def rule(self) -> Reference:
        """Add all rules, and return the name of the schema's own."""
        root = self._value(self._root)
        while self._left:
            name, leaf = self._left.pop()
            self._grammar.widest = 0
            self._within.clear()
            self._grammar.define(name, self._alternatives(leaf))
            self._ambiguity.add_leaf(name, leaf.schema, [*self._within], self._grammar.widest)
        self._ambiguity.check()
        return root

    def _value(self, schema: Located) -> Reference:
        """Return the rule of a schema."""
        try:
            leaves = self._leaves.of(schema)
        except SchemaError:
            if not self._lenient:
                raise
            leaves = [Leaf("any", schema)]
        if len(leaves) > MOST_OPTIONS:
            raise schema.error(f"has more than {MOST_OPTIONS} alternatives")
        rules = [self._leaf_rule(leaf) for leaf in leaves]
        name = rules[0] if len(rules) == 1 else self._grammar.rule(*[(rule,) for rule in rules])
        if len(rules) != 1:
            self._ambiguity.add_choice(name, schema, self._groups(leaves))
        self._within[name] = None
        return name

    def _groups(self, leaves: list[Leaf]) -> list[LeafGroup]:
        """Return the leaves in groups that begin with the same character. "any" begins like all others."""
        groups: dict[str, list[Leaf]] = {}
        for leaf in leaves:
            groups.setdefault(_OPENINGS.get(leaf.type, ""), []).append(leaf)
        if "any" in groups:
            groups = {"": leaves}
        return [
            LeafGroup([self._leaf_rule(leaf) for leaf in some], kind == "{" and self._leaves.are_told_apart(some))
            for kind, some in groups.items()
        ]

    def _leaf_rule(self, leaf: Leaf) -> Reference:
        """Return the rule of a leaf, which is defined later: schemas may be recursive."""
        if leaf.key not in self._known:
            name = self._known[leaf.key] = self._grammar.reserve()
            self._left.append((name, leaf))
        return self._known[leaf.key]

    def _alternatives(self, leaf: Leaf) -> list[Alternative]:
        try:
            return self._typed(leaf)
        except SchemaError:
            if not self._lenient:
                raise
            return self._typed(Leaf("any" if leaf.type == "enum" else leaf.type, _FREE))

    def _typed(self, leaf: Leaf) -> list[Alternative]:
        schema = leaf.schema
        match leaf.type:
            case "object":
                return self._object(schema)
            case "array":
                return [self._array(schema)]
            case "string" | "number" | "integer":
                return [(self._scalar(leaf.type, schema),)]
            case "boolean":
                return [(literal("true"),), (literal("false"),)]
            case "null":
                return [(literal("null"),)]
            case "enum":
                return [(constants_rule(leaf.constants, self._grammar),)]
            case _:
                rules = [self._leaf_rule(Leaf(one, _FREE)) for one in TYPES if one != "integer"]
                self._within.update(dict.fromkeys(rules))
                return [(rule,) for rule in rules]

    def _scalar(self, type: str, schema: Located) -> Reference:
        """Return the rule of a string or a number. Equal schemas share it."""
        keywords = KEYWORDS["number" if type == "integer" else type]
        key = (type, *(repr(schema.value.get(name)) for name in keywords))
        if key not in self._scalars:
            if type == "string":
                rule = string_rule(schema, self._grammar, self._steps)
            else:
                rule = number_rule(schema, type == "integer", self._grammar, self._steps)
            self._scalars[key] = rule, self._grammar.widest
        rule, widest = self._scalars[key]
        self._grammar.widest = max(self._grammar.widest, widest)
        return rule

    def _object(self, schema: Located) -> list[Alternative]:
        schema.refuse("propertyNames")
        if schema.object("patternProperties").value:
            schema.refuse("patternProperties")
        properties, required = schema.object("properties"), dict.fromkeys(schema.texts("required"))
        self._count_optional(schema, properties.names(), required)
        rest = schema.at("additionalProperties") if "additionalProperties" in schema else Located(True, schema)
        members = {name: self._value(properties.at(name)) for name in properties.names()}
        unnamed = [name for name in required if name not in members]
        if unnamed and rest.value is False:
            raise schema.error(f"names {unnamed[0]!r:.60}, which is not in properties", "required")
        members |= {name: self._value(rest) for name in unnamed}
        least, most = schema.limits("minProperties", "maxProperties")
        if "properties" not in schema and not required:
            return [self._map(schema, rest, least, most)]
        if least > len(required):
            raise schema.error("is supported up to the number of required properties only", "minProperties")
        if most is not None and most < len(members):
            raise schema.error("is supported from the number of all properties only", "maxProperties")
        return self._members(members, required)

    def _map(self, schema: Located, values: Located, least: int, most: int | None) -> Alternative:
        """Return the symbols of an object with any names."""
        if least > 1:
            raise schema.error("above 1 is not supported: names could be repeated", "minProperties")
        name = self._leaf_rule(Leaf("string", _FREE))
        self._within[name] = None
        return self._listed("{", (name, literal(": "), self._value(values)), "}", least, most)

    def _count_optional(self, schema: Located, names: Iterable[str], required: Container[str]) -> None:
        """Count the properties that may come next at one place. Raises SchemaError."""
        in_a_row = most = 0
        for name in names:
            in_a_row = 0 if name in required else in_a_row + 1
            most = max(most, in_a_row)
        if most > MOST_OPTIONS:
            raise schema.error(f"has more than {MOST_OPTIONS} optional properties in a row. Make some required")
        self._grammar.widest = max(self._grammar.widest, most + 1)

    def _members(self, members: Mapping[str, Reference], required: Container[str]) -> list[Alternative]:
        """Return the alternatives of an object with named properties, in the order of the schema.

        Two chains of rules are built from the last property back: one after another property, one at the beginning.
        """
        first: list[Alternative] = [(literal("}"),)]
        after: list[Alternative] = [(literal("}"),)]
        for name in reversed(list(members)):
            is_optional = name not in required
            member = (literal(f"{json.dumps(name, ensure_ascii=False)}: "), members[name])
            rest = self._grammar.rule(*after)
            first = [(*member, rest), *([(self._grammar.rule(*first),)] if is_optional else [])]
            after = [(literal(", "), *member, rest), *([(rest,)] if is_optional else [])]
        return [(literal("{"), self._grammar.rule(*first))]

    def _array(self, schema: Located) -> Alternative:
        schema.refuse("contains")
        least, most = schema.limits("minItems", "maxItems")
        if schema.value.get("uniqueItems") and (most is None or most > 1):
            raise schema.error("is not supported. Remove it, and check the answer yourself", "uniqueItems")
        fixed = schema.items("prefixItems")
        if fixed:
            return self._tuple(schema, fixed, least, most)
        items = schema.at("items") if "items" in schema else Located(True, schema)
        return self._listed("[", (self._value(items),), "]", least, most)

    def _tuple(self, schema: Located, fixed: list[Located], least: int, most: int | None) -> Alternative:
        """Return the symbols of a list that has exactly the items of ``prefixItems``."""
        if least > len(fixed) or (most is not None and most < len(fixed)):
            raise schema.error("is supported for exactly as many items as minItems and maxItems allow", "prefixItems")
        symbols = [symbol for one in fixed for symbol in (literal(", "), self._value(one))][1:]
        return (literal("["), *symbols, literal("]"))

    def _listed(self, begin: str, item: Alternative, end: str, least: int, most: int | None) -> Alternative:
        """Return the symbols of a list of equal items, or of the members of a map."""
        if most == 0:
            return (literal(begin + end),)
        following = (literal(", "), *item)
        rest = self._grammar.repeated(following, max(0, least - 1), None if most is None else most - 1)
        if least:
            return (literal(begin), *item, *rest, literal(end))
        return (literal(begin), self._grammar.rule((*item, *rest, literal(end)), (literal(end),)))
