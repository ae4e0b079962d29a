"""What a request may cost is known before it is read: lists, values and texts that are too long are one quick error."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pydantic_core
import pytest
from openai import AsyncOpenAI

from app.http.chat import ChatRequest
from app.http.client_secrets import WithdrawRequest
from app.media.images import Image
from tests.app.media.test_images import png
from tests.app.rig import Running

URL = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "script", "messages": [{"role": "user", "content": "say: hello"}]}


async def post(server: Running, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx.AsyncClient(base_url=server.http, timeout=60) as http:
        return await http.post(URL, content=content, headers={"content-type": "application/json"})


def lists(schema: Any, whole: Any, path: str, seen: set[str]) -> Iterator[tuple[str, bool]]:
    """The lists in a JSON schema, each with whether it is bounded; those of a kind in ``seen`` are known."""
    if isinstance(schema, list):
        for one in schema:
            yield from lists(one, whole, path, seen)
    if not isinstance(schema, dict):
        return
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and name not in seen:
        seen.add(name)
        yield from lists(whole["components"]["schemas"][name], whole, name, seen)
    if schema.get("type") == "array":
        yield path, "maxItems" in schema
    for key, inner in schema.items():
        yield from lists(inner, whole, f"{path}.{key}", seen)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_list_of_every_body_is_bounded(shared: Running) -> None:
    whole: Any = shared.server.config.app.openapi()  # type: ignore[union-attr]
    found, seen = dict[str, bool](), set[str]()
    for url, methods in whole["paths"].items():
        for method, route in methods.items():
            found |= lists(route.get("requestBody"), whole, f"{method} {url}", seen)
    assert len(found) > 5
    assert [path for path, bounded in found.items() if not bounded] == []


@pytest.mark.fault("I2.1")
@pytest.mark.parametrize(
    "mistakes",
    [
        {"modalities": [0] * 90_000},
        {"messages": [{"role": "user", "content": [1] * 40}] * 2_000},
        {"messages": [{"role": "user", "content": [{"type": "text"}] * 60}] * 700},
        {"messages": [{"role": "assistant", "tool_calls": [0] * 60}] * 1_500},
        {"tools": [0] * 90_000},
        {"stop": [0] * 90_000},
        {"messages": [0] * 90_000},
    ],
    ids=["modalities", "parts", "kinds of parts", "calls", "tools", "stop", "messages"],
)
def test_the_first_mistakes_are_enough(mistakes: Any) -> None:
    """Of 4 million mistakes all were found, in half a minute and 6.9 GB, and one was told."""
    with pytest.raises(pydantic_core.ValidationError) as errors:
        ChatRequest.model_validate({**HELLO, **mistakes})
    assert errors.value.error_count() <= 4  # a field of two kinds has one for each


def said(role: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, **more}, *HELLO["messages"]]}


WORD = {"type": "text", "text": "x"}
CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("most", "made"),
    [
        pytest.param(2_000, lambda n: {"messages": HELLO["messages"] * n}, id="messages"),
        pytest.param(64, lambda n: said("system", content=[WORD] * n), id="parts of instructions"),
        pytest.param(64, lambda n: said("user", content=[WORD] * n), id="parts of a turn"),
        pytest.param(64, lambda n: said("assistant", content=[WORD] * n), id="parts of an answer"),
        pytest.param(64, lambda n: said("tool", content=[WORD] * n, tool_call_id="c"), id="parts of a result"),
        pytest.param(64, lambda n: said("assistant", tool_calls=[CALL] * n), id="calls"),
        pytest.param(8, lambda n: {"modalities": ["text"] * n}, id="modalities"),
        pytest.param(128, lambda n: {"tools": [{"function": {"name": "f"}}] * n}, id="tools"),
        pytest.param(128, lambda n: {"tools": [{"function": {"name": "f" * n}}]}, id="a function's name"),
        pytest.param(4, lambda n: {"stop": ["x"] * n}, id="stop"),
        pytest.param(500, lambda n: {"stop": "x" * n}, id="a stop string"),
        pytest.param(500, lambda n: {"stop": ["x" * n]}, id="one of the stop strings"),
    ],
)
def test_as_much_as_may_be_is_taken_and_no_more(most: int, made: Callable[[int], dict[str, Any]]) -> None:
    ChatRequest.model_validate({**HELLO, **made(most)})
    with pytest.raises(pydantic_core.ValidationError, match=f"at most {most} "):
        ChatRequest.model_validate({**HELLO, **made(most + 1)})


def test_a_client_secret_that_is_withdrawn_is_no_longer_than_one() -> None:
    WithdrawRequest(value="x" * 200)
    with pytest.raises(pydantic_core.ValidationError, match="at most 200 "):
        WithdrawRequest(value="x" * 201)


@pytest.mark.fault("I2.1")
@pytest.mark.parametrize("field", ["modalities", "ignored"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_body_of_too_many_values_is_refused(field: str, shared: Running) -> None:
    body = json.dumps(HELLO)[:-1].encode() + b', "%s":[' % field.encode() + b"[]," * 1_000_000 + b"0]}"
    answer = await post(shared, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert "100000 values" in answer.json()["error"]["message"]
    assert (await post(shared, HELLO)).status_code == 200


@pytest.mark.fault("I7.1")
@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": "user", "content": "x" * 1_000_000}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 50_000}] * 20}]},
        {"messages": [{"role": "system", "content": "x" * 1_000_000}, *HELLO["messages"]]},
        {"messages": [{"role": "assistant", "content": "x" * 1_000_000}, *HELLO["messages"]]},
        {"messages": [{"role": "tool", "tool_call_id": "x" * 1_000_000, "content": "a"}, *HELLO["messages"]]},
        {"messages": [*HELLO["messages"] * 100, {"role": "user", "content": "x" * 80_000}] * 17 + HELLO["messages"]},
        {"tools": [{"function": {"name": "t", "description": "x" * 1_000_000}}]},
    ],
    ids=["a text", "parts", "instructions", "an answer", "an id", "all together", "tools"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_text_that_no_context_holds_is_refused(more: Any, shared: Running) -> None:
    """It killed the worker of whoever was served beside."""
    answer = await post(shared, {**HELLO, **more})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert len(error["message"]) < 200
    assert error["param"]


async def test_honest_heavy_use_goes_through(openai: AsyncOpenAI) -> None:
    """A long history, instructions of 60 kB, twenty tools with deep schemas, thirty pictures."""
    url = "data:image/png;base64," + base64.b64encode(png(640, 480)).decode()
    pictures: list[Any] = [{"type": "image_url", "image_url": {"url": url}}] * 30
    schema: dict[str, Any] = {"type": "string"}
    for depth in range(12):
        schema = {"type": "object", "properties": {f"level_{depth}": schema}}
    tools: list[Any] = [
        {"type": "function", "function": {"name": f"tool_{n}", "description": "Does it.", "parameters": schema}}
        for n in range(20)
    ]
    history: list[Any] = [{"role": "user", "content": "hello " * 100}, {"role": "assistant", "content": "hi"}] * 300
    messages: list[Any] = [
        {"role": "system", "content": "Be kind. " * 6_500},
        *history,
        {"role": "user", "content": [*pictures, {"type": "text", "text": "say: hello"}]},
    ]
    answer = await openai.chat.completions.create(model="script", messages=messages, tools=tools)
    assert answer.choices[0].message.content == "hello"


@pytest.mark.asyncio(loop_scope="module")
async def test_pictures_that_are_too_large_together_are_not_decoded(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    whole = Image.decode
    monkeypatch.setattr(Image, "decode", lambda image: decoded.append(image.size) or whole(image))
    url = "data:image/png;base64," + base64.b64encode(png(4000, 4000)).decode()
    part = {"type": "image_url", "image_url": {"url": url}}
    answer = await post(shared, {**HELLO, "messages": [{"role": "user", "content": [part] * 60}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert len(decoded) <= 1
