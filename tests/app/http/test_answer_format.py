"""JSON answers of both chat APIs, through the official client: with a model's file, a remote server, and nano."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, LengthFinishReasonError
from pydantic import BaseModel, Field

from app.commands.deployment import Parts, deployment
from engine import EngineSpec, StageSpec
from engine.deployment.config import ModelSpec
from tests.app.rig import ROOT, Running, running
from tests.engine.worker.llm.gguf_files import counting, write_model
from tests.engine.worker.llm.scripted import answer, scripted, stream, words

DAY: dict[str, Any] = {"type": "string", "enum": ["monday", "tuesday"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"day": DAY, "open": {"const": True}},
    "required": ["day", "open"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "time", "parameters": {"type": "object", "properties": {}}},
}
MODELS = answer(200, {"data": [{"id": "m"}]})
ASKED: list[Any] = [{"role": "user", "content": "When are you open?"}]


class Opening(BaseModel):
    day: Literal["monday", "tuesday"]
    open: bool
    hours: list[Literal[9, 18]] = Field(max_length=2)


class Essay(BaseModel):
    text: str = Field(min_length=200)


def chat_format(schema: Any, **fields: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "opening", "schema": schema, **fields}}


def response_format(schema: Any, **fields: Any) -> Any:
    return {"format": {"type": "json_schema", "name": "opening", "schema": schema, **fields}}


def local_spec(weights: Path) -> EngineSpec:
    stage = StageSpec(use="llm.llamacpp", name="thinker", weights=str(weights), max_batch=2)
    return EngineSpec(name="counter", stages=(stage,), launcher="inline", server={"host": "127.0.0.1", "port": 0})


@pytest.fixture
async def counter(tmp_path: Path) -> AsyncGenerator[Running]:
    """A server whose model would count for ever."""
    async with running(local_spec(write_model(tmp_path / "model.gguf", counting()))) as server:
        yield server


def client(server: Running) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="none", base_url=f"{server.http}/v1", max_retries=0)


async def test_an_answer_is_valid_against_the_schema(counter: Running) -> None:
    async with client(counter) as openai:
        done = await openai.chat.completions.create(model="m", messages=ASKED, response_format=chat_format(SCHEMA))
        response = await openai.responses.create(model="m", input="When?", text=response_format(SCHEMA))
    for text_ in (done.choices[0].message.content, response.output_text):
        value = json.loads(text_ or "")
        assert value in ({"day": "monday", "open": True}, {"day": "tuesday", "open": True})
    assert done.choices[0].finish_reason == "stop"
    assert response.to_dict()["text"] == response_format(SCHEMA, description=None, strict=None)


async def test_an_answer_is_parsed_to_a_class(counter: Running) -> None:
    async with client(counter) as openai:
        done = await openai.chat.completions.parse(model="m", messages=ASKED, response_format=Opening)
        response = await openai.responses.parse(model="m", input="When?", text_format=Opening)
    assert isinstance(done.choices[0].message.parsed, Opening)
    assert isinstance(response.output_parsed, Opening)


async def test_the_example_of_the_documentation(counter: Running, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    [code] = re.findall(r"<!-- test: json -->\n```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert "127.0.0.1:8000" in code
    names: dict[str, Any] = {"__name__": "example"}
    await asyncio.to_thread(exec, code.replace("127.0.0.1:8000", counter.http.removeprefix("http://")), names)
    assert isinstance(names["answer"].choices[0].message.parsed, names["Booking"])
    assert capsys.readouterr().out.startswith("name=")
    await asyncio.to_thread(names["client"].close)


async def test_an_answer_streams(counter: Running) -> None:
    async with client(counter) as openai:
        asked: Any = {"model": "m", "messages": ASKED, "response_format": chat_format(SCHEMA), "stream": True}
        chunks = [chunk async for chunk in await openai.chat.completions.create(**asked)]
        async with openai.responses.stream(model="m", input="When?", text_format=Opening) as events:
            response = await events.get_final_response()
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert len([piece for piece in pieces if piece]) > 2
    assert json.loads("".join(pieces))["open"] is True
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert isinstance(response.output_parsed, Opening)


async def test_any_object(counter: Running) -> None:
    async with client(counter) as openai:
        fields: Any = {"response_format": {"type": "json_object"}, "max_tokens": 30}
        done = await openai.chat.completions.create(model="m", messages=ASKED, **fields)
        response = await openai.responses.create(
            model="m", input="When?", text={"format": {"type": "json_object"}}, max_output_tokens=30
        )
    assert (done.choices[0].message.content or "").startswith("{")
    assert response.output_text.startswith("{")


async def test_an_answer_that_is_cut_off_says_so(counter: Running) -> None:
    async with client(counter) as openai:
        with pytest.raises(LengthFinishReasonError):
            await openai.chat.completions.parse(model="m", messages=ASKED, response_format=Essay, max_tokens=20)
        schema = Essay.model_json_schema()
        fields: Any = {"text": response_format(schema), "max_output_tokens": 20}
        response = await openai.responses.create(model="m", input="Write.", **fields)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "object", "properties": {"a": {"not": {}}}}, "JSON schema, $.properties.a.not: is not supported"),
        ({"type": "objekt"}, "JSON schema, $.type: 'objekt' is no type"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "JSON schema: no finite value is valid"),
        ({"type": "string", "pattern": "^(a|b)*a(a|b){20}$"}, "JSON schema, $.pattern: is too complex"),
        ({"type": "object", "properties": {f"p{n}": {} for n in range(3000)}}, "more than 100 optional properties"),
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_one_error_and_the_next_is_answered(
    schema: Any, told: str, counter: Running
) -> None:
    async with client(counter) as openai:
        for stream_ in (False, True):
            asked: Any = {"response_format": chat_format(schema), "stream": stream_}
            with pytest.raises(BadRequestError) as refused:
                await openai.chat.completions.create(model="m", messages=ASKED, **asked)
            assert refused.value.code == "invalid_json_schema"
            assert told in refused.value.message
        with pytest.raises(BadRequestError, match="JSON schema"):
            await openai.responses.create(model="m", input="When?", text=response_format(schema))
        done = await openai.chat.completions.create(model="m", messages=ASKED, response_format=chat_format(SCHEMA))
    assert done.choices[0].finish_reason == "stop"


async def test_tools_and_a_schema_are_one_error_unless_none_may_be_called(counter: Running) -> None:
    async with client(counter) as openai:
        asked: Any = {"model": "m", "messages": ASKED, "tools": [TOOL], "response_format": chat_format(SCHEMA)}
        with pytest.raises(BadRequestError, match="tools cannot be combined with an answer in JSON"):
            await openai.chat.completions.create(**asked)
        done = await openai.chat.completions.create(**asked, tool_choice="none")
    assert json.loads(done.choices[0].message.content or "")["open"] is True


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
async def test_a_call_that_is_required_is_made(choice: Any, counter: Running) -> None:
    async with client(counter) as openai:
        asked: Any = {"tools": [TOOL], "tool_choice": choice}
        done = await openai.chat.completions.create(model="m", messages=ASKED, **asked)
    calls: Any = done.choices[0].message.tool_calls
    assert [(one.function.name, one.function.arguments) for one in calls] == [("time", "{}")]


def optional() -> dict[str, Any]:
    return {**SCHEMA, "required": ["day"]}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (optional(), "$: required must contain 'open'"),
        ({**SCHEMA, "additionalProperties": True}, "$: additionalProperties must be false in strict mode."),
        ({**SCHEMA, "properties": {"day": DAY, "open": optional()}}, "$.properties.open: required must contain 'open'"),
        ({**SCHEMA, "$defs": {"a": {"type": ["object", "null"]}}}, "$.$defs.a: additionalProperties must be false"),
        ({"type": "array", "items": SCHEMA}, "$: its type must be 'object', without anyOf, in strict mode."),
        ({**SCHEMA, "properties": {"day": {"allOf": [DAY]}, "open": DAY}}, "$.properties.day.allOf: is not permitted"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_strict_mode_has_the_rules_of_openai(schema: Any, told: str, shared: Running) -> None:
    async with httpx.AsyncClient(base_url=f"{shared.http}/v1") as http:
        fields: dict[str, Any] = {"response_format": chat_format(schema, strict=True)}
        chat = await http.post("/chat/completions", json={"model": "m", "messages": ASKED, **fields})
        fields = {"text": response_format(schema, strict=True)}
        response = await http.post("/responses", json={"model": "m", "input": "When?", **fields})
        function = {"name": "f", "strict": True, "parameters": schema}
        fields = {"tools": [{"type": "function", "function": function}]}
        tools = await http.post("/chat/completions", json={"model": "m", "messages": ASKED, **fields})
        fields = {"tools": [{"type": "function", **function}]}
        flat = await http.post("/responses", json={"model": "m", "input": "When?", **fields})
    params = ("response_format.json_schema.schema", "text.format.schema", "tools.0.function.parameters",
              "tools.0.parameters")  # fmt: skip
    for answer_, param in zip((chat, response, tools, flat), params, strict=True):
        error = answer_.json()["error"]
        assert (answer_.status_code, error["code"], error["param"]) == (400, "invalid_json_schema", param)
        assert error["type"] == "invalid_request_error"
        assert told in error["message"]


@pytest.mark.parametrize(
    ("format", "code", "param"),
    [
        ({"type": "json"}, "invalid_value", "response_format"),
        ({"type": "json_schema"}, "missing_required_parameter", "response_format.json_schema"),
        (chat_format(SCHEMA, name="two words"), "invalid_value", "response_format.json_schema.name"),
        (chat_format([]), "invalid_value", "response_format.json_schema.schema"),
        (chat_format({"description": "x" * 300_000}), "invalid_json_schema", "response_format.json_schema.schema"),
        (chat_format(SCHEMA), "unsupported_value", "response_format"),
        ({"type": "json_object"}, "unsupported_value", "response_format"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_mistakes_are_one_clear_error(format: Any, code: str, param: str, shared: Running) -> None:
    """The last two are right, but the scripted family writes no JSON."""
    async with httpx.AsyncClient(base_url=f"{shared.http}/v1") as http:
        body = {"model": "m", "messages": ASKED, "response_format": format}
        refused = await http.post("/chat/completions", json=body)
        spoken = await http.post("/chat/completions", json={**body, "modalities": ["text", "audio"]})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, code, param)
    assert spoken.status_code == 400


def remote_spec(url: str) -> EngineSpec:
    whole = deployment("script", parts=Parts(thinker=f"openai:m@{url}"))
    return dataclasses.replace(whole, launcher="inline", server={"host": "127.0.0.1", "port": 0})


async def test_a_remote_server_gets_the_format_as_it_is() -> None:
    value = '{"day": "monday", "open": true}'
    async with (
        scripted(stream(*words(value)), models=MODELS) as llm,
        running(remote_spec(llm.url)) as server,
        client(server) as openai,
    ):
        fields: Any = {"response_format": chat_format(SCHEMA, strict=True), "tools": [TOOL], "tool_choice": "auto"}
        done = await openai.chat.completions.create(model="m", messages=ASKED, **fields)
    assert done.choices[0].message.content == value
    [asked] = llm.asked
    assert asked.body["response_format"] == chat_format(SCHEMA, strict=True)
    assert asked.body["tools"][0]["function"]["name"] == "time"
    assert [message["role"] for message in asked.body["messages"]] == ["user"], "nothing about speech"


async def test_a_remote_server_that_refuses_a_format_is_one_error() -> None:
    refusal = answer(400, {"error": {"message": "response_format is not supported", "type": "invalid_request_error"}})
    async with scripted(refusal) as llm, running(remote_spec(llm.url)) as server, client(server) as openai:
        asked: Any = {"response_format": chat_format(SCHEMA)}
        with pytest.raises(BadRequestError, match="response_format is not supported"):
            await openai.chat.completions.create(model="m", messages=ASKED, **asked)


async def test_an_answer_of_a_remote_server_that_is_not_json_is_one_error() -> None:
    async with (
        scripted(stream(*words("We ", "open ", "at ", "nine."))) as llm,
        running(remote_spec(llm.url)) as server,
        client(server) as openai,
    ):
        asked: Any = {"response_format": chat_format(SCHEMA)}
        with pytest.raises(APIStatusError, match="has not answered in JSON") as failed:
            await openai.chat.completions.create(model="m", messages=ASKED, **asked)
        assert failed.value.code == "stage_failed"
        plain = await openai.chat.completions.create(model="m", messages=ASKED)
    assert plain.choices[0].message.content == "We open at nine."


async def test_in_a_chain_nano_passes_a_format_on(tmp_path: Path) -> None:
    models = (
        ModelSpec(use="nano.thinker"),
        ModelSpec(use="llm.llamacpp", weights=str(write_model(tmp_path / "model.gguf", counting()))),
    )
    stage = StageSpec(use="llm.chain", name="thinker", models=models, max_batch=2)
    spec = EngineSpec(name="both", stages=(stage,), launcher="inline", server={"host": "127.0.0.1", "port": 0})
    async with running(spec) as server, client(server) as openai:
        asked: Any = {"response_format": chat_format(SCHEMA)}
        done = await openai.chat.completions.create(model="m", messages=ASKED, **asked)
        with pytest.raises(BadRequestError, match=r"\$\.not: is not supported"):
            await openai.chat.completions.create(model="m", messages=ASKED, response_format=chat_format({"not": {}}))
        spoken = await openai.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello."}])
    assert json.loads(done.choices[0].message.content or "")["open"] is True
    assert spoken.choices[0].message.content
