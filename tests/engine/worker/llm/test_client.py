"""The client of chat completions servers, against one that does what a test says."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.access.tls import AUTO, certificate_of
from app.settings import Settings
from engine.chunk import Text, Usage
from engine.errors import (
    ContextOverflow,
    EngineError,
    Overloaded,
    RequestError,
    StageFailed,
    StageUnavailable,
    Stalled,
)
from engine.worker.llm import client as module
from engine.worker.llm.client import ChatClient
from engine.worker.llm.deltas import Delta, ReasoningDelta
from engine.worker.llm.options import options_of
from tests.engine.worker.llm.scripted import (
    STREAM_HEAD,
    Connection,
    Reply,
    Scripted,
    answer,
    broken,
    chunk,
    delta,
    raw_stream,
    scripted,
    stalled,
    stream,
    text,
    words,
)

BODY = {"model": "m", "messages": [{"role": "user", "content": "the cat of my neighbour is called Mimi"}]}
GOOD = stream(*words("Good ", "day"))
ANSWER = [Text("Good ", 0), Text("day", 5), Usage()]


@asynccontextmanager
async def asking(server: Scripted, **options: Any) -> AsyncGenerator[ChatClient]:
    client = ChatClient(options_of({"url": server.url, "model": "m", **options}))
    try:
        yield client
    finally:
        await client.aclose()


async def answered(client: ChatClient, body: dict[str, Any] = BODY) -> list[Delta]:
    return [one async for one in client.answer(body, "r")]


async def error_of(*replies: Reply, **options: Any) -> EngineError:
    """The one error that an answer ends with."""
    async with scripted(*replies) as server, asking(server, **options) as client:
        with pytest.raises(EngineError) as caught:
            await answered(client)
        return caught.value


async def test_an_answer_comes_and_its_connection_is_used_again() -> None:
    async with scripted(GOOD) as server, asking(server) as client:
        assert await answered(client) == await answered(client) == ANSWER
        assert server.connections == 1
        first = server.asked[0]
    assert (first.method, first.path, first.body) == ("POST", "/v1/chat/completions", BODY)
    assert "authorization" not in first.head


@pytest.mark.parametrize("cuts", [1, 2, 3, 7])
@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
async def test_a_stream_may_be_cut_anywhere(cuts: int, end: str) -> None:
    spoken = "Grüße, 世界 🎈"
    async with scripted(stream(text(spoken, "stop"), end=end, cuts=cuts)) as server, asking(server) as client:
        assert await answered(client) == [Text(spoken, 0), Usage()]


async def test_comments_blanks_and_other_fields_of_a_stream_mean_nothing() -> None:
    event = b'data:{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}'
    pieces = b": ping\n\nevent: message\nid: 3\nretry: 10\n" + event + b"\n\n"
    async with scripted(raw_stream(b"\n\n", pieces, b": ping\n\n")) as server, asking(server) as client:
        assert await answered(client) == [Text("a", 0), Usage()]


async def test_a_stream_may_end_without_done_and_even_without_an_end() -> None:
    for reply in (stream(*words("Good ", "day"), done=False), broken(*words("Good ", "day"))):
        async with scripted(reply) as server, asking(server) as client:
            assert await answered(client) == ANSWER


async def test_an_answer_that_is_complete_waits_for_no_end_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL_S", 0.01)
    async with scripted(stalled(*words("Good ", "day"))) as server, asking(server) as client:
        assert await answered(client) == ANSWER


@pytest.mark.parametrize("late", [{"error": {"message": "no usage", "code": 500}}, "gone"])
async def test_an_error_that_follows_a_complete_answer_is_no_error_of_it(late: Any) -> None:
    async with scripted(stream(*words("Good ", "day"), late)) as server, asking(server) as client:
        assert await answered(client) == ANSWER


async def test_a_body_that_is_json_and_no_stream_is_an_answer() -> None:
    whole = {
        "choices": [{"message": {"content": "Good day"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    async with scripted(answer(200, whole)) as server, asking(server) as client:
        assert await answered(client) == [Text("Good day", 0), Usage(input_tokens=1, output_tokens=2)]


async def test_who_stops_listening_ends_the_answer_at_the_server() -> None:
    async with scripted(stalled(text("Good "))) as server, asking(server) as client:
        deltas = client.answer(BODY, "r")
        assert await anext(deltas) == Text("Good ", 0)
        await deltas.aclose()
        await server.aborted.wait()


async def test_a_task_that_is_cancelled_ends_the_answer_at_the_server() -> None:
    async with scripted(stalled(text("Good "))) as server, asking(server) as client:
        begun = asyncio.Event()

        async def listen() -> None:
            async for _ in client.answer(BODY, "r"):
                begun.set()

        task = asyncio.create_task(listen(), name="listen")
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.aborted.wait()


# ---- what goes wrong ----


@pytest.mark.parametrize(
    ("reply", "kind", "words_of_it"),
    [
        (answer(401, {"error": {"message": "Incorrect API key provided: sk-ab"}}), StageUnavailable, "requires an API"),
        (answer(403), StageUnavailable, "requires an API key"),
        (answer(404, {"error": "model 'm' not found"}), StageUnavailable, "no model 'm'.*says: model 'm' not found"),
        (answer(429, {"error": {"message": "Rate limit"}}, retry_after="60"), Overloaded, "no more.*Rate limit"),
        (answer(429), Overloaded, "no more requests"),
        (answer(503, {"error": {"message": "Loading model"}}), StageUnavailable, "not ready.*Loading model"),
        (answer(500, b"<html>Internal</html>", "text/html"), StageFailed, r"failed \(500\)\.$"),
        (answer(500, {"error": {"message": "out of memory"}}), StageFailed, "failed.*out of memory"),
        (answer(418), StageFailed, r"failed \(418\)"),
        (answer(400, {"error": {"message": "no such thing"}}), RequestError, "does not take.*no such thing"),
        (answer(400, {"error": {"message": "exceeds the available context size"}}), ContextOverflow, "the context of"),
        (answer(400, {"error": {"code": "context_length_exceeded", "message": "Too many"}}), ContextOverflow, "Too"),
        (answer(307, location="http://192.0.2.1/v1/chat/completions"), StageUnavailable, "redirects requests"),
        (answer(200, b"<html>Hello</html>", "text/html"), StageFailed, "does not support the chat completions API"),
        (answer(200, b"no json"), StageFailed, "is not a chat completion"),
        (answer(200, {"error": {"message": "boom", "code": 503}}), StageUnavailable, "boom"),
        (raw_stream(), StageFailed, "before it was complete"),
        (raw_stream(b'data: {"choices":[{"delta":{"conte'), StageFailed, "before it was complete"),
        (stream("no json"), StageFailed, "is not a chat completion"),
        (stream(text("Good"), {"error": {"message": "boom"}}), StageFailed, "boom"),
        (stream(text("Good"), done=False), StageFailed, "before it was complete"),
        (broken(text("Good")), StageFailed, "closed the connection"),
        (broken(), StageFailed, "closed the connection"),
        (broken(head=False), StageFailed, "closed the connection"),
    ],
)  # fmt: skip
async def test_each_failure_is_one_clear_error(reply: Reply, kind: type[EngineError], words_of_it: str) -> None:
    error = await error_of(reply)
    assert type(error) is kind, error
    assert str(error).endswith(".")
    assert error.__suppress_context__ or error.__context__ is None

    assert re.search(words_of_it, str(error)), str(error)


async def test_ten_megabytes_of_one_token_are_not_gathered() -> None:
    sent = 0

    async def flood(connection: Connection) -> None:
        nonlocal sent
        await connection.send(STREAM_HEAD + chunk(b'data: {"choices":[{"delta":{"content":"'))
        for _ in range(160):
            await connection.send(chunk(b"a" * 65536))
            sent += 65536

    error = await error_of(flood)
    assert isinstance(error, StageFailed)
    assert "an event that is too large" in str(error)
    assert sent < 9_000_000  # what a socket's buffers hold, on both sides, beside the one megabyte


async def test_an_error_body_without_an_end_is_read_to_a_bound() -> None:
    async def endless(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 500 x\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await connection.send(chunk(b"x" * 65536))

    error = await error_of(endless)
    assert len(str(error)) < 400


async def test_a_server_that_is_down_is_told_and_asked_again_by_the_next_answer() -> None:
    async with scripted(GOOD) as server:
        port = server.port
    async with asking(server) as client:
        with pytest.raises(StageUnavailable, match="cannot be reached"):
            await answered(client)
        with pytest.raises(StageUnavailable, match="cannot be reached"):
            await client.probe()
        async with scripted(GOOD, port=port):
            assert await answered(client) == ANSWER


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    certificate = certificate_of(Settings(https=AUTO), tmp_path)
    assert certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.path, certificate.key_path)
    async with scripted(GOOD, certificate=context) as server, asking(server) as client:
        with pytest.raises(StageUnavailable, match="certificate that this machine does not trust"):
            await answered(client)
        assert not server.asked


async def test_a_server_without_tls_is_told_so() -> None:
    async with scripted(GOOD) as server:
        server.scheme = "https"
        async with asking(server) as client:
            with pytest.raises(StageUnavailable, match="does not speak TLS"):
                await answered(client)


# ---- deadlines ----


async def test_a_first_token_that_does_not_come_is_told() -> None:
    error = await error_of(stalled(delta(role="assistant")), first_token_s=0.05)
    assert isinstance(error, Stalled)
    assert "not begun its answer within 0.05 s" in str(error)


async def test_events_that_add_nothing_are_no_first_token() -> None:
    async def roles(connection: Connection) -> None:
        await connection.send(STREAM_HEAD)
        while True:
            await connection.send(chunk(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'))
            await asyncio.sleep(0.005)

    assert isinstance(await error_of(roles, first_token_s=0.05), Stalled)


async def test_a_server_that_takes_a_request_and_says_nothing_is_told() -> None:
    async def silent(connection: Connection) -> None:
        await connection.gone()

    assert isinstance(await error_of(silent, first_token_s=0.05), Stalled)


async def test_a_stream_that_stands_still_is_ended() -> None:
    async def pings(connection: Connection) -> None:
        await connection.send(STREAM_HEAD + chunk(b'data: {"choices":[{"delta":{"content":"Good"}}]}\n\n'))
        while True:
            await connection.send(chunk(b": ping\n\n"))
            await asyncio.sleep(0.005)

    error = await error_of(pings, stall_s=0.05)
    assert isinstance(error, Stalled)
    assert "nothing more for 0.05 s" in str(error)


async def test_a_model_that_thinks_for_18_s_is_alive_and_its_thoughts_are_told_apart() -> None:
    now_s = 0.0
    steps = [delta(reasoning_content="Hm. ") for _ in range(18)]

    def clock() -> float:
        return now_s

    async with scripted(stream(*steps, *words("Yes."))) as server:
        options = options_of({"url": server.url, "model": "m", "first_token_s": 5, "stall_s": 5})
        client = ChatClient(options, clock)
        told: list[Delta] = []
        async for one in client.answer(BODY, "r"):
            told.append(one)
            now_s += isinstance(one, ReasoningDelta)  # each took a second
        await client.aclose()
    assert now_s == 18
    assert told[18:] == [Text("Yes.", 0), Usage()]


async def test_the_time_that_a_reader_takes_is_not_the_servers() -> None:
    now_s = 0.0
    async with scripted(GOOD) as server:
        client = ChatClient(options_of({"url": server.url, "model": "m", "stall_s": 5}), lambda: now_s)
        async for _ in client.answer(BODY, "r"):
            now_s += 60
        await client.aclose()


# ---- a second try ----


@pytest.mark.parametrize(
    "first",
    [broken(), broken(head=False), broken(delta(role="assistant")), answer(503, retry_after="0")],
)
async def test_before_the_first_token_there_is_one_more_try(first: Reply) -> None:
    async with scripted(first, GOOD) as server, asking(server) as client:
        assert await answered(client) == ANSWER
        assert len(server.asked) == 2
    async with scripted(first) as server, asking(server) as client:
        with pytest.raises(EngineError):
            await answered(client)
        assert len(server.asked) == 2


async def test_after_the_first_token_there_is_none() -> None:
    async with scripted(broken(text("Good ")), GOOD) as server, asking(server) as client:
        with pytest.raises(StageFailed):
            await answered(client)
        assert len(server.asked) == 1


async def test_a_server_that_asks_for_long_is_not_waited_for() -> None:
    async with scripted(answer(429, retry_after="4"), GOOD) as server, asking(server) as client:
        with pytest.raises(Overloaded):
            await answered(client)
        assert len(server.asked) == 1


# ---- fields that a server does not know ----

EXTRA = {**BODY, "reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 9}


def refuses(message: str) -> Reply:
    return answer(400, {"error": {"message": message}})


async def test_a_field_that_a_server_refuses_is_left_out_from_then_on() -> None:
    unknown = refuses("Unrecognized request argument supplied: chat_template_kwargs")
    async with scripted(unknown, GOOD) as server, asking(server) as client:
        assert await answered(client, EXTRA) == await answered(client, EXTRA) == ANSWER
        kept = [sorted(asked.body.keys() - BODY.keys()) for asked in server.asked]
    assert kept[0] == ["chat_template_kwargs", "max_tokens", "reasoning_effort"]
    assert kept[1:] == [["max_tokens", "reasoning_effort"]] * 2


async def test_where_a_server_names_no_field_all_extras_are_left_out() -> None:
    async with scripted(refuses("Bad request"), GOOD) as server, asking(server) as client:
        assert await answered(client, EXTRA) == ANSWER
        assert server.asked[1].body == {**BODY, "max_tokens": 9}


async def test_a_refusal_that_stays_is_told_and_teaches_nothing() -> None:
    async with scripted(refuses("Bad"), refuses("Bad"), GOOD) as server, asking(server) as client:
        with pytest.raises(RequestError):
            await answered(client, EXTRA)
        assert len(server.asked) == 2
        await answered(client, EXTRA)
        assert server.asked[2].body == EXTRA


async def test_newer_models_get_the_limit_by_its_newer_name() -> None:
    newer = refuses("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    async with scripted(newer, GOOD) as server, asking(server) as client:
        await answered(client, {**BODY, "max_tokens": 9})
        assert server.asked[1].body == {**BODY, "max_completion_tokens": 9}


async def test_a_value_out_of_range_is_told_and_its_field_kept() -> None:
    async with scripted(refuses("temperature must be at most 2")) as server, asking(server) as client:
        with pytest.raises(RequestError, match="at most 2"):
            await answered(client, {**BODY, "temperature": 3})
        assert len(server.asked) == 1


# ---- the key, and what is private ----


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("sk-secret-0123456789abcdef\n")
    return str(path)


async def test_the_key_goes_to_the_server_and_nowhere_else(key_file: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = {"error": {"message": "bad key sk-secret-01…, in: the cat of my neighbour is called Mimi"}}
    replies = (GOOD, answer(401, said), answer(500, {"error": "bad key: …et-0123…"}), answer(500, said))
    async with scripted(*replies) as server, asking(server, key_file=key_file) as client:
        await answered(client)
        assert server.asked[0].head["authorization"] == "Bearer sk-secret-0123456789abcdef"
        for _ in range(3):
            with pytest.raises(EngineError) as caught:
                await answered(client)
            shown = "".join(traceback.format_exception(caught.value))
            assert "secret" not in shown
            assert "0123" not in shown
            assert "neighbour" not in shown
    assert "secret" not in caplog.text
    assert "neighbour" not in caplog.text


async def test_a_message_that_repeats_the_conversation_is_not_passed_on() -> None:
    error = await error_of(answer(422, {"detail": [{"msg": "bad input: my neighbour is called Mimi"}]}))
    assert "neighbour" not in str(error)
    assert str(error).endswith("does not take this request (422).")


async def test_a_long_message_with_control_characters_becomes_a_short_line() -> None:
    error = await error_of(answer(500, {"error": "a\x1b[31m\n\u202eb " + "c" * 5000}))
    assert len(str(error)) < 330
    assert str(error).isprintable()


async def test_proxies_of_the_environment_are_asked_only_where_an_option_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted(GOOD) as server, scripted(GOOD) as proxy:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with asking(server) as client:
            await answered(client)
        assert not proxy.asked
        async with asking(server, env_proxies=True) as client:
            await answered(client)
        assert proxy.asked[0].path == f"{server.url}/chat/completions"


# ---- the probe ----


async def test_a_probe_asks_for_the_models_and_no_model() -> None:
    async with scripted(answer(200, {"data": [{"id": "m"}, {"id": "n"}]})) as server, asking(server) as client:
        assert (await client.probe()).names == ("m", "n")
        assert [(asked.method, asked.path) for asked in server.asked] == [("GET", "/v1/models")]


async def test_a_probe_warms_the_connection_of_the_first_answer() -> None:
    async with scripted(answer(200, {"data": []}), GOOD) as server, asking(server) as client:
        await client.probe()
        await answered(client)
        assert server.connections == 1


@pytest.mark.parametrize("reply", [answer(404), answer(200, b"no json"), answer(200, []), answer(200, {"data": [1]})])
async def test_a_server_that_lists_no_models_is_there_all_the_same(reply: Reply) -> None:
    async with scripted(reply) as server, asking(server) as client:
        assert (await client.probe()).names == ()


async def test_a_probe_that_is_refused_is_told() -> None:
    async with scripted(answer(401)) as server, asking(server) as client:
        with pytest.raises(StageUnavailable, match="requires an API key"):
            await client.probe()
