"""JSON schemas as people write them, which the grammar enforces, and schemas that it refuses."""

from __future__ import annotations

from typing import Any


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def optional(**properties: Any) -> dict[str, Any]:
    return {**obj(**properties), "required": []}


def array(items: Any, least: int = 0, most: int = 3) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


TEXT: dict[str, Any] = {"type": "string", "maxLength": 12}
WORD: dict[str, Any] = {"type": "string", "pattern": "^[a-z]{1,8}$"}
DIGIT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 9}
TREE: dict[str, Any] = {
    "$defs": {
        "node": obj(value=DIGIT, next={"$ref": "#/$defs/next"}),
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
    },
    "$ref": "#/$defs/node",
}

ENFORCED: dict[str, Any] = {
    "one property": obj(name=TEXT),
    "a person": obj(name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 130}, admin={"type": "boolean"}),
    "nested objects": obj(a=obj(b=obj(c=obj(d=DIGIT)))),
    "optional properties": optional(a=DIGIT, b=TEXT, c={"type": "null"}),
    "some required": {**obj(a=DIGIT, b=TEXT, c=DIGIT), "required": ["b"]},
    "last required": {**obj(a=DIGIT, b=TEXT, c=DIGIT), "required": ["c"]},
    "required without a schema":
        {"type": "object", "properties": {"a": DIGIT}, "required": ["a", "b"], "additionalProperties": TEXT},
    "an empty object": obj(),
    "an object without properties": {"type": "object", "properties": {}},
    "a map": {"type": "object", "additionalProperties": DIGIT, "maxProperties": 3},
    "a map with a member": {"type": "object", "additionalProperties": TEXT, "minProperties": 1, "maxProperties": 2},
    "other properties allowed": {"type": "object", "properties": {"a": DIGIT}, "required": ["a"]},
    "properties without a type": {"properties": {"a": DIGIT}, "required": ["a"]},
    "200 properties": obj(**{f"p{n}": DIGIT for n in range(200)}),
    "100 optional properties": optional(**{f"p{n}": DIGIT for n in range(100)}),
    "unicode keys": obj(**{"größe": DIGIT, "名前": TEXT, "🙂": {"type": "boolean"}, "é\u0301": DIGIT}),
    "odd keys":
        obj(**{'a"b': DIGIT, "c\\d": DIGIT, "e\nf": DIGIT, "": DIGIT, " ": DIGIT, "$ref": DIGIT, "type": DIGIT}),
    "an array": obj(items=array(DIGIT)),
    "an array with bounds": obj(items=array(WORD, 2, 4)),
    "exactly three items": array(DIGIT, 3, 3),
    "no items": array(DIGIT, 0, 0),
    "nested arrays": array(array(array(DIGIT, 1, 2), 1, 2), 1, 2),
    "an array of objects": obj(people=array(obj(name=WORD, age=DIGIT), 1, 2)),
    "a tuple":
        {"type": "array", "prefixItems": [DIGIT, TEXT, {"type": "boolean"}], "items": False, "minItems": 3,
        "maxItems": 3},
    "at most one unique item": {"type": "array", "items": DIGIT, "uniqueItems": True, "maxItems": 1},
    "an enum": obj(color={"type": "string", "enum": ["red", "green", "blue"]}),
    "an enum of prefixes": {"enum": ["a", "ab", "abc", "b", ""]},
    "a mixed enum": {"enum": [1, 1.5, "1", None, True, [1, 2], {"a": 1}]},
    "an enum with wrong types": {"type": "integer", "enum": [1, "one", 2.0, None]},
    "300 values": {"enum": [f"value {n}" for n in range(300)]},
    "unicode values": {"enum": ["größe", "名前", "🙂", 'a "quoted" one', "back\\slash", "tab\there"]},
    "a const": obj(kind={"const": "user"}, version={"const": 3}),
    "a const object": {"const": {"a": [1, "x", None]}},
    "nullable by types": obj(name={"type": ["string", "null"], "maxLength": 5}),
    "nullable by anyOf": obj(age={"anyOf": [DIGIT, {"type": "null"}]}),
    "several types": {"type": ["boolean", "integer"], "minimum": 3, "maximum": 5},
    "anyOf objects": obj(shape={"anyOf": [obj(radius=DIGIT), obj(width=DIGIT, height=DIGIT)]}),
    "oneOf by a const":
        {"oneOf": [obj(kind={"const": "cat"}, lives=DIGIT), obj(kind={"const": "dog"}, tricks=array(WORD))]},
    "oneOf by types": {"oneOf": [DIGIT, WORD, {"type": "null"}]},
    "a recursive choice": {
        "$defs": {"e": {"anyOf": [
            obj(kind={"const": "number"}, value=DIGIT),
            obj(kind={"const": "sum"}, terms=array({"$ref": "#/$defs/e"}, 1, 2)),
            obj(kind={"enum": ["not", "minus"]}, of={"$ref": "#/$defs/e"}),
        ]}},
        **obj(root={"$ref": "#/$defs/e"}),
    },
    "allOf one": obj(a={"allOf": [{"$ref": "#/$defs/d"}], "description": "A digit."}) | {"$defs": {"d": DIGIT}},
    "a definition": {"$defs": {"name": WORD}, **obj(first={"$ref": "#/$defs/name"}, last={"$ref": "#/$defs/name"})},
    "old definitions": {"definitions": {"n/a": DIGIT}, **obj(a={"$ref": "#/definitions/n~1a"})},
    "a reference to a property": obj(a=DIGIT, b={"$ref": "#/properties/a"}),
    "a list of itself": {"$defs": {"list": array({"$ref": "#/$defs/list"}, 0, 2)}, "$ref": "#/$defs/list"},
    "a linked list": TREE,
    "recursion to the root": optional(value=DIGIT, next={"$ref": "#"}),
    "an option without end": optional(a=DIGIT, b={"$ref": "#/properties/b"}),
    "a pattern": obj(code={"type": "string", "pattern": "^[A-Z]{2}-\\d{4}$"}),
    "a pattern without anchors": {"type": "string", "pattern": "b+", "maxLength": 5},
    "a pattern of alternatives": {"type": "string", "pattern": "^(?:mon|tues|wednes)day$|^week(end)?$"},
    "a pattern with quotes": {"type": "string", "pattern": '^"[^"\\\\]{0,3}\\\\n"$'},
    "a pattern of any character": {"type": "string", "pattern": "^.{2,4}$"},
    "a pattern and lengths": {"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 9},
    "a pattern of spaces": {"type": "string", "pattern": "^\\S+\\s\\S+$", "maxLength": 8},
    "dates": obj(day={"type": "string", "format": "date"}, at={"type": "string", "format": "time"}),
    "a date with a time": {"type": "string", "format": "date-time"},
    "addresses": obj(mail={"type": "string", "format": "email"}, ip={"type": "string", "format": "ipv4"}),
    "hosts": obj(host={"type": "string", "format": "hostname"}, url={"type": "string", "format": "uri"}),
    "a uuid": obj(id={"type": "string", "format": "uuid"}),
    "ipv6 and a duration":
        array({"anyOf": [{"type": "string", "format": "ipv6"}, {"type": "string", "format": "duration"}]}, 1, 2),
    "an unknown format": {"type": "string", "format": "password", "maxLength": 8},
    "lengths": obj(a={"type": "string", "minLength": 3, "maxLength": 5}, b={"type": "string", "maxLength": 0}),
    "a long text": {"type": "string", "minLength": 300, "maxLength": 700},
    "an integer range": {"type": "integer", "minimum": -17, "maximum": 120},
    "exclusive limits": {"type": "integer", "exclusiveMinimum": 4.5, "exclusiveMaximum": 7},
    "a minimum alone": {"type": "integer", "minimum": 12},
    "a maximum alone": {"type": "integer", "maximum": -3},
    "a number range": {"type": "number", "minimum": -0.25, "maximum": 1.75},
    "an open number range": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "a narrow number range": {"type": "number", "minimum": 2.125, "maximum": 2.25},
    "a number": obj(x={"type": "number"}),
    "multiples":
        obj(a={"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 50}, b={"type": "number",
        "multipleOf": 0.01, "minimum": 0, "maximum": 9}),
    "annotations":
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A", "default": 3, "examples": [1],
        "x-extra": 1, **DIGIT},
    "a boolean schema": obj(a=DIGIT, b={"type": "array", "items": False}),
    "a property that is never valid":
        {"type": "object", "properties": {"a": DIGIT, "b": False}, "required": ["a"], "additionalProperties": False},
    "keywords of another type": {"type": "integer", "minimum": 1, "maximum": 9, "minLength": 3, "pattern": "x"},
}  # fmt: skip
"""Schemas by their names. Their values are short, so that a small model ends its answers."""

LOOP: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
DEEP: dict[str, Any] = obj(child={"$ref": "#"})

REFUSED: dict[str, tuple[Any, str]] = {
    "an unknown type": ({"type": "strng"}, r"\$\.type: 'strng' is no type"),
    "a type that is a number": (obj(a={"type": 5}), r"\$\.properties\.a\.type: must be a list"),
    "properties as a list": ({"type": "object", "properties": []}, r"\$\.properties: must be an object"),
    "required as a text": ({"type": "object", "required": "a"}, r"\$\.required: must be a list"),
    "an empty enum": (obj(a={"enum": []}), r"\$\.properties\.a\.enum: must have 1 to"),
    "a schema that is a number": (obj(a=5), r"\$\.properties\.a: must be an object or a boolean"),
    "a minimum as a text": ({"type": "integer", "minimum": "1"}, r"\$\.minimum: must be a number"),
    "a negative length": ({"type": "string", "minLength": -1}, r"\$\.minLength: must be an integer"),
    "crossed lengths": ({"type": "string", "minLength": 3, "maxLength": 2}, r"\$\.maxLength: must not be less"),
    "not": (obj(a={"not": {"type": "null"}}), r"\$\.properties\.a\.not: is not supported"),
    "if": ({"type": "object", "if": {}, "then": {}}, r"\$\.if: is not supported"),
    "unique items": (
        obj(**{"a b": {"type": "array", "uniqueItems": True}}),
        r"\$\.properties\['a b'\]\.uniqueItems: is not",
    ),
    "contains": ({"type": "array", "contains": DIGIT}, r"\$\.contains: is not supported"),
    "pattern properties": ({"type": "object", "patternProperties": {"^x": DIGIT}}, r"\$\.patternProperties: is not"),
    "property names": ({"type": "object", "propertyNames": WORD}, r"\$\.propertyNames: is not supported"),
    "many properties": ({"type": "object", "minProperties": 2}, r"\$\.minProperties: above 1 is not supported"),
    "allOf several": ({"allOf": [obj(a=DIGIT), obj(b=DIGIT)]}, r"\$\.allOf: with several schemas"),
    "oneOf that overlaps": (
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        r"\$\.oneOf\[0\]: a value could be valid",
    ),
    "anyOf with a neighbour": ({"type": "object", "anyOf": [DIGIT]}, r"\$\.type: is not supported together with anyOf"),
    "a remote reference": ({"$ref": "https://example.com/a.json"}, r"\$\.\$ref: only paths within the schema"),
    "a reference to nothing": (obj(a={"$ref": "#/$defs/no"}), r"\$\.properties\.a\.\$ref: '#/\$defs/no' names nothing"),
    "look-around": ({"type": "string", "pattern": "^(?!a)b$"}, r"\$\.pattern: has a look-around"),
    "a back reference": ({"type": "string", "pattern": "^(a)\\1$"}, r"\$\.pattern: has \\1"),
    "a pattern that is none": ({"type": "string", "pattern": "^(a$"}, r"\$\.pattern: has an anchor within a group"),
    "a costly pattern": ({"type": "string", "pattern": "^(a|b)*a(a|b){20}$"}, r"\$\.pattern: is too complex"),
    "an unsupported format": ({"type": "string", "format": "regex"}, r"\$\.format: 'regex' is not supported"),
    "a large limit": ({"type": "integer", "minimum": 10**16}, r"\$\.minimum: must be between"),
    "odd multiples": ({"type": "number", "multipleOf": 0.3}, r"\$: the number can be a multiple of"),
    "recursion without end": (DEEP, r"no finite value is valid"),
    "a reference to itself": (LOOP, r"no finite value is valid"),
    "an empty range": ({"type": "integer", "minimum": 3, "maximum": 2}, r"no finite value is valid"),
    "nothing": (False, r"no finite value is valid"),
    "a required property that is missing": ({**obj(), "required": ["b"]}, r"\$\.required: names 'b'"),
    "too many properties": (
        obj(**{f"p{n}": {"enum": [f"{n} {m}" for m in range(9)]} for n in range(4000)}),
        "is too large",
    ),
    "too many optional properties": (
        optional(**{f"p{n}": {} for n in range(6000)}),
        r"\$: has more than 100 optional",
    ),
    "too many values": (obj(a={"enum": [*range(3000)]}), r"\$\.properties\.a\.enum: must have 1 to 2000 values"),
    "too many alternatives": ({"anyOf": [{"const": n} for n in range(500)]}, r"\$: has more than 100 alternatives"),
    "nested alternatives that begin alike": (
        {"$defs": {"a": {"anyOf": [array({"$ref": "#/$defs/a"}, 0, n) for n in range(2, 9)]}}, "$ref": "#/$defs/a"},
        r"has alternatives that begin alike",
    ),
    "alternatives of many optional properties": (
        {"anyOf": [optional(**{f"p{n}": DIGIT for n in range(m, 80)}) for m in range(9)]},
        r"\$: has alternatives that begin alike",
    ),
    "a huge list": (array(array(TEXT, 0, 10**9), 0, 10**9), r"is too large"),
}
"""Schemas by their names, each with its error."""
