"""The spans of answers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.trace import SpanKind, StatusCode

from tests.app.mcp_rig import library
from tests.app.rig import Running
from tests.app.tracing.collected import PARENT_ID, TRACE_ID, TRACEPARENT, Collected, attributes, tracing_server

SPOKEN = {"model": "m", "modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}, "stream": True}


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
async def traced(monkeypatch: pytest.MonkeyPatch, collected: Collected) -> AsyncGenerator[Running]:
    async with tracing_server(monkeypatch, collected) as server:
        yield server


async def post(server: Running, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http, timeout=30) as http:
        return await http.post(path, json=body, headers=headers)


async def test_a_spoken_completion_continues_the_trace_of_its_request(traced: Running, collected: Collected) -> None:
    messages = [{"role": "user", "content": "say: hello"}]
    answer = await post(traced, "/v1/chat/completions", {**SPOKEN, "messages": messages}, **TRACEPARENT)
    assert answer.status_code == 200
    traced.service.tracing.close()
    span = collected.named("invoke_agent")
    assert span.kind == SpanKind.SERVER
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE_ID, PARENT_ID)
    assert collected.below(span) == ["llm thinker", "tts talker", "tts code2wav"]
    assert attributes(span)["parley.time_to_first_audio"] > 0
    assert attributes(span)["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes(collected.named("llm thinker"))["gen_ai.usage.output_tokens"] > 0


async def test_an_error_sets_the_status(traced: Running, collected: Collected) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "fail"}]}
    assert (await post(traced, "/v1/chat/completions", body)).status_code == 500
    traced.service.tracing.close()
    span = collected.named("invoke_agent")
    assert span.status.status_code == StatusCode.ERROR
    assert attributes(span)["error.type"] == "stage_failed"


async def test_a_tool_of_a_response_is_a_span(monkeypatch: pytest.MonkeyPatch, collected: Collected) -> None:
    async with library() as books, tracing_server(monkeypatch, collected, mcp=books.named()) as server:
        body = {"model": "m", "input": 'tool shelf {"title": "Emma"}', "tools": [books.entry()]}
        assert (await post(server, "/v1/responses", body)).json()["status"] == "completed"
    below = collected.below(collected.named("invoke_agent"))
    assert sorted(below) == ["execute_tool shelf", "llm thinker", "llm thinker"]
    assert attributes(collected.named("execute_tool shelf"))["parley.tool.server"] == "library"
