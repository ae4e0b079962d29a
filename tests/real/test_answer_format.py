"""JSON answers of a small real language model: valid against each of many schemas, or cut off and told so."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from engine import IN_WRITING, JsonFormat, Message, Request, TextPart
from engine.chunk import Text, Usage
from engine.stream import of
from engine.worker.stage import StageConfig
from engine.worker.stages.llm.llamacpp import LlamaCppStage
from tests.engine.fakes import only
from tests.engine.worker.llm.grammar.schemas import ENFORCED

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

UNENDING = {"a linked list"}
"""The model adds another item for ever, as the schema allows."""
PATIENT = {"context": 4096, "first_token_s": 300.0, "stall_s": 300.0}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def thinker(smollm2: Path) -> AsyncGenerator[LlamaCppStage]:
    stage = LlamaCppStage(StageConfig(weights=smollm2, slots=1, slots_fixed=True, options=PATIENT))
    await answer(stage, {"const": 1}, 9)  # starts the thread of its answers
    yield stage
    await stage.aclose()


async def answer(thinker: LlamaCppStage, schema: Any, most: int) -> tuple[str, Usage]:
    said = Message("user", (TextPart("Give a short example."),))
    asked = Request(
        id="r", session="s", messages=(said,), wants=IN_WRITING, format=JsonFormat(schema=schema), max_text_tokens=most
    )
    chunks = [chunk async for chunk in thinker.answer(asked, of(()))]
    [usage] = only(Usage, chunks)
    return "".join(chunk.text for chunk in only(Text, chunks)), usage


@pytest.mark.parametrize("name", [name for name in ENFORCED if name not in UNENDING])
async def test_an_answer_is_valid_against_its_schema(name: str, thinker: LlamaCppStage) -> None:
    text, usage = await answer(thinker, ENFORCED[name], 2500)
    assert usage.finish == "stop"
    schema = ENFORCED[name]
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))


@pytest.mark.parametrize("name", sorted(UNENDING))
async def test_an_answer_without_end_is_cut_off_and_says_so(name: str, thinker: LlamaCppStage) -> None:
    text, usage = await answer(thinker, ENFORCED[name], 80)
    assert usage.finish == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
