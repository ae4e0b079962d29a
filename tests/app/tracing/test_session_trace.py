"""The spans of a session over a real socket: their tree, attributes and errors, and what they never contain."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from app.realtime.protocol import CallItem
from app.realtime.protocol.server_events import (
    CallDoneEvent,
    OutputItemRef,
    ResponseCreatedEvent,
    ResponseDoneEvent,
    ResponseView,
    TranscriptionCompletedEvent,
)
from app.tracing import SessionTrace
from app.tracing.session_trace import MOST_HEARD_CHARS, MOST_OPEN
from tests.app.mcp_rig import Library, library
from tests.app.rig import Running, silence, talking, tone
from tests.app.tracing.collected import PARENT_ID, TRACE_ID, TRACEPARENT, Collected, attributes, tracing_server

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
async def traced(monkeypatch: pytest.MonkeyPatch, collected: Collected) -> AsyncGenerator[Running]:
    async with tracing_server(monkeypatch, collected) as server:
        yield server


async def test_a_spoken_turn_is_a_response_with_its_stages(traced: Running, collected: Collected) -> None:
    async with talking(traced) as client:
        await client.append(tone(0.6))
        await client.append(silence(0.8))
        done = (await client.until("response.done"))["response"]
    await traced.empty()
    traced.service.tracing.close()
    session, response = collected.named("session"), collected.named("invoke_agent")
    assert (session.kind, session.parent) == (SpanKind.SERVER, None)
    assert collected.below(session) == ["invoke_agent"]
    assert collected.below(response) == ["asr ears", "llm thinker", "tts talker", "tts code2wav"]
    known = attributes(response)
    assert known["gen_ai.operation.name"] == "invoke_agent"
    assert known["gen_ai.response.id"] == done["id"]
    assert known["gen_ai.conversation.id"] == attributes(session)["gen_ai.conversation.id"]
    assert known["gen_ai.output.type"] == "speech"
    assert known["parley.response.status"] == "completed"
    ledger = done["parley"]["ledger"]
    assert known["parley.time_to_first_audio"] == pytest.approx(ledger["ttfa_ms"] / 1000, abs=1e-5)
    assert {name for name in known if name.startswith("parley.ledger.")} == {
        f"parley.ledger.{name}" for name in ledger["terms_ms"]
    }
    thinker = attributes(collected.named("llm thinker"))
    assert thinker["gen_ai.operation.name"] == "chat"
    assert thinker["gen_ai.provider.name"] == "parley"
    assert thinker["gen_ai.usage.input_tokens"] == done["usage"]["input_tokens"] > 0
    assert thinker["gen_ai.usage.output_tokens"] == done["usage"]["output_tokens"] > 0
    assert thinker["gen_ai.response.time_to_first_chunk"] >= 0
    assert [event.name for event in collected.named("llm thinker").events] == ["first_output"]
    assert "gen_ai.usage.input_tokens" not in known, "counted once"
    assert all(one.end_time >= one.start_time for one in collected.all if one.start_time and one.end_time)


async def test_an_incoming_trace_is_continued(traced: Running, collected: Collected) -> None:
    async with talking(traced, additional_headers=TRACEPARENT) as client:
        await client.ask("say: hello")
    async with talking(traced, additional_headers={"traceparent": "nonsense"}) as client:
        await client.alive()
    await traced.empty()
    traced.service.tracing.close()
    first, second = sorted((one for one in collected.all if one.name == "session"), key=lambda one: one.start_time or 0)
    assert first.parent is not None
    assert (f"{first.parent.trace_id:032x}", f"{first.parent.span_id:016x}") == (TRACE_ID, PARENT_ID)
    assert second.parent is None
    mine = {one.name for one in collected.all if one.context and f"{one.context.trace_id:032x}" == TRACE_ID}
    assert mine >= {"session", "invoke_agent", "llm thinker"}


async def test_a_failed_response_has_an_error(traced: Running, collected: Collected) -> None:
    async with talking(traced) as client:
        done = await client.ask("fail")
        await client.send("response.cancel")
        await client.error()
    await traced.empty()
    traced.service.tracing.close()
    response, session = collected.named("invoke_agent"), collected.named("session")
    assert response.status.status_code == StatusCode.ERROR
    assert attributes(response)["error.type"] == done["status_details"]["error"]["code"]
    assert session.status.status_code == StatusCode.UNSET, "a client's mistake is no error of the session"
    assert [event.name for event in session.events] == ["error"]


async def test_a_barge_in_is_no_error(traced: Running, collected: Collected) -> None:
    async with talking(traced) as client:
        await (await client.say("long 100")).send("response.create")
        await client.until("response.output_audio.delta")
        await client.send("response.cancel")
        await client.until("response.done")
    await traced.empty()
    traced.service.tracing.close()
    response = collected.named("invoke_agent")
    known = attributes(response)
    assert (known["parley.response.status"], known["parley.response.reason"]) == ("cancelled", "client_cancelled")
    assert response.status.status_code == StatusCode.UNSET
    assert collected.below(response) == ["llm thinker", "tts talker", "tts code2wav"]


async def test_a_function_is_a_tool_that_ends_with_its_output(traced: Running, collected: Collected) -> None:
    async with talking(traced) as client:
        await client.configure(tools=[LOOK])
        (call,) = (await client.ask('tool look {"at": "plums"}'))["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "ripe"}
        await client.send("conversation.item.create", item=output)
        await client.until("conversation.item.done")
    await traced.empty()
    traced.service.tracing.close()
    tool = collected.named("execute_tool look")
    assert collected.below(collected.named("invoke_agent"))[-1] == tool.name
    known = attributes(tool)
    assert known["gen_ai.operation.name"] == "execute_tool"
    assert known["gen_ai.tool.name"] == "look"
    assert known["gen_ai.tool.type"] == "function"
    assert known["gen_ai.tool.call.id"] == call["call_id"]


async def test_a_tool_of_an_mcp_server_runs_here(monkeypatch: pytest.MonkeyPatch, collected: Collected) -> None:
    async with library() as books, tracing_server(monkeypatch, collected, mcp=books.named()) as server:
        await _shelves_and_lends(server, books)
    shelf, lend = collected.named("execute_tool shelf"), collected.named("execute_tool lend")
    assert attributes(shelf)["gen_ai.tool.type"] == "extension"
    assert attributes(shelf)["parley.tool.server"] == "library"
    assert shelf.status.status_code == StatusCode.UNSET
    assert lend.status.status_code == StatusCode.ERROR
    assert attributes(lend)["error.type"]
    assert not [name for name in (*attributes(shelf), *attributes(lend)) if "arguments" in name or "result" in name]


async def _shelves_and_lends(server: Running, books: Library) -> None:
    async with talking(server) as client:
        await client.configure(output_modalities=["text"], tools=[books.entry()])
        await client.until("mcp_list_tools.completed")
        await client.ask('tool shelf {"title": "Emma"}')
        await client.until("response.mcp_call.completed")
        await client.ask('tool lend {"title": "Emma"}')
        await client.until("response.mcp_call.failed")
    await server.empty()


WORDS = ("swordfish", "marzipan", "zanzibar")


async def _tell_secrets(server: Running) -> None:
    async with talking(server) as client:
        transcribed = {"input": {"transcription": {"model": "whisper-1"}}}
        await client.configure(instructions="zanzibar", tools=[LOOK], audio=transcribed)
        await client.ask("say: swordfish")
        (call,) = (await client.ask('tool look {"at": "marzipan"}'))["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "marzipan"}
        await client.send("conversation.item.create", item=output)
        await client.append(tone(0.4))
        await client.append(silence(0.8))
        await client.until("response.done")
    await server.empty()


async def test_spans_have_no_words_of_a_conversation(traced: Running, collected: Collected) -> None:
    await _tell_secrets(traced)
    traced.service.tracing.close()
    text = "".join(one.to_json() for one in collected.all)
    assert "execute_tool look" in text
    assert not [word for word in (*WORDS, "seconds") if word in text]


async def test_contents_are_traced_if_the_operator_says_so(
    monkeypatch: pytest.MonkeyPatch, collected: Collected
) -> None:
    async with tracing_server(monkeypatch, collected, contents=True) as server:
        await _tell_secrets(server)
    first, *_, last = sorted(
        (one for one in collected.all if one.name == "invoke_agent"), key=lambda one: one.start_time or 0
    )
    asked = json.loads(attributes(first)["gen_ai.input.messages"])
    assert asked == [{"role": "user", "parts": [{"type": "text", "content": "say: swordfish"}]}]
    assert "swordfish" in attributes(first)["gen_ai.output.messages"]
    assert "seconds" in attributes(last)["gen_ai.input.messages"], "the transcript of the spoken turn"
    tool = attributes(collected.named("execute_tool look"))
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"at": "marzipan"}
    assert tool["gen_ai.tool.call.result"] == "marzipan"


async def test_results_that_never_come_are_not_waited_for(traced: Running, collected: Collected) -> None:
    trace = SessionTrace(traced.service.tracing, "m")
    take = trace.tapped(lambda event: None)
    trace.begin("sess_1", "session", "")
    for n in range(MOST_OPEN + 1):
        item = CallItem(id=f"item_{n}", call_id=f"call_{n}", name="look", arguments="{}", status="completed")
        take(CallDoneEvent(OutputItemRef("resp_1", item.id, 0, True, True), item, None))
    traced.service.tracing.root("probe", {})
    trace.end(1000, "bye")
    traced.service.tracing.close()
    assert sum(one.name == "execute_tool look" for one in collected.all) == MOST_OPEN + 1


async def test_only_the_latest_words_wait_for_a_response(monkeypatch: pytest.MonkeyPatch, collected: Collected) -> None:
    async with tracing_server(monkeypatch, collected, contents=True) as server:
        trace = SessionTrace(server.service.tracing, "m")
        take = trace.tapped(lambda event: None)
        trace.begin("sess_1", "session", "")
        for n in range(4):
            take(TranscriptionCompletedEvent(f"item_{n}", str(n) * (MOST_HEARD_CHARS // 2), 1.0))
        options: Any = SimpleNamespace(speaks=False)
        view = ResponseView("resp_1", None, options, outcome="completed")
        take(ResponseCreatedEvent(view))
        take(ResponseDoneEvent(view))
        take(ResponseCreatedEvent(view))
        take(TranscriptionCompletedEvent("item_5", "5" * 2 * MOST_HEARD_CHARS, 1.0))
        take(ResponseDoneEvent(view))
        trace.end(1000, "bye")
    first, second = [one for one in collected.all if one.name == "invoke_agent"]
    assert _asked(first) == ["2", "3"]
    assert _asked(second) == ["5"]


def _asked(span: ReadableSpan) -> list[str]:
    """Return the first character of each of the user's texts."""
    (message,) = json.loads(attributes(span)["gen_ai.input.messages"])
    return [part["content"][0] for part in message["parts"]]


async def test_without_an_endpoint_events_pass_untouched(server: Running) -> None:
    def emit(event: object) -> None: ...

    assert SessionTrace(server.service.tracing, "m").tapped(emit) is emit
