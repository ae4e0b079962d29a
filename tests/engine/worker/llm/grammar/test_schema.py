"""All texts of a schema's grammar are valid against the schema, and schemas that cannot be enforced are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine.errors import SchemaError
from engine.worker.llm.grammar.schema import call_grammar, json_grammar
from tests.engine.worker.llm.grammar.reading import matches, reader
from tests.engine.worker.llm.grammar.schemas import DEEP, DIGIT, ENFORCED, REFUSED, obj, optional

TEXTS = 30


def check(schema: Any, text: str) -> None:
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))


@pytest.mark.parametrize("name", ENFORCED)
def test_texts_of_the_grammar_are_valid(name: str) -> None:
    schema = ENFORCED[name]
    found = reader(json_grammar(schema))
    for seed in range(TEXTS):
        check(schema, found.text(seed))


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_path(name: str) -> None:
    schema, told = REFUSED[name]
    with pytest.raises(SchemaError, match=told) as refused:
        json_grammar(schema)
    assert str(refused.value).startswith("JSON schema")
    assert len(str(refused.value)) < 400


def test_a_choice_that_refers_to_itself_has_its_other_values() -> None:
    """No validator follows such a reference."""
    schema = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": 1}, {"type": "null"}]}}, "$ref": "#/$defs/a"}
    found = reader(json_grammar(schema))
    assert {found.text(seed) for seed in range(TEXTS)} == {"1", "null"}


def test_any_object() -> None:
    found = reader(json_grammar({"type": "object"}))
    values = [json.loads(found.text(seed)) for seed in range(TEXTS)]
    assert all(isinstance(value, dict) for value in values)
    assert any(values)


def test_optional_properties_make_a_grammar_of_their_size() -> None:
    """llama.cpp's own conversion makes one that grows with their cube."""
    some, twice = (len(json_grammar(optional(**{f"p{n:03}": DIGIT for n in range(count)}))) for count in (45, 90))
    assert twice < 2.3 * some


def test_a_large_limit_needs_few_rules() -> None:
    assert len(json_grammar({"type": "string", "maxLength": 100_000}).splitlines()) < 1500


def test_equal_strings_share_their_rules() -> None:
    url = {"type": "string", "format": "uri"}
    one, many = (json_grammar(obj(**{f"p{n}": dict(url) for n in range(count)})) for count in (1, 200))
    assert len(many) < len(one) + 200 * 100


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_a_call_names_a_function_and_has_its_arguments(names: list[str]) -> None:
    """What cannot be enforced in them is left to the model."""
    parameters = {
        "properties": {"n": {"$ref": "#/$defs/n"}, "m": {"not": {}}},
        "required": ["n"],
        "$defs": {"n": DIGIT},
    }
    found = reader(call_grammar([(name, parameters) for name in names]))
    calls = [json.loads(found.text(seed)) for seed in range(TEXTS)]
    assert {call["name"] for call in calls} == {*names}
    for call in calls:
        check(DIGIT, json.dumps(call["arguments"]["n"]))


def test_calls_within_text_are_calls_of_a_function() -> None:
    found = reader(call_grammar([("f", obj(n=DIGIT))], ("<", ">")))
    texts = [found.text(seed) for seed in range(TEXTS)]
    calls = [piece.partition(">")[0] for text in texts for piece in text.split("<")[1:]]
    assert calls
    for call in calls:
        check(obj(name={"const": "f"}, arguments=obj(n=DIGIT)), call)
        assert (call[0], call[-1]) == ("\n", "\n")
    assert "" in texts, "a text without a call"


@pytest.mark.parametrize("text", ["", "a", "<", "<<c", "<cal", "<cal<call", "a < b, <c all>", "</call>", "<calls>"])
def test_any_text_without_the_marker_is_free(text: str) -> None:
    assert matches(call_grammar([("f", obj(n=DIGIT))], ("<call>", "</call>")), text)


@pytest.mark.parametrize("tags", [None, ("<call>", "</call>")])
def test_arguments_without_end_are_refused(tags: tuple[str, str] | None) -> None:
    with pytest.raises(SchemaError, match="no finite arguments"):
        call_grammar([("f", DEEP)], tags)


def test_there_are_sixty_schemas_and_more() -> None:
    assert len(ENFORCED) >= 60
