"""All texts of a schema's grammar are valid against the schema, and schemas that cannot be enforced are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine.errors import SchemaError
from engine.worker.llm.grammar.schema import call_grammar, json_grammar
from tests.engine.worker.llm.grammar.reading import reader
from tests.engine.worker.llm.grammar.schemas import ENFORCED, REFUSED

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


def test_there_are_sixty_schemas_and_more() -> None:
    assert len(ENFORCED) >= 60
