"""``POST /v1/chat/completions``, through the official client."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from openai import APIError, APIStatusError, AsyncOpenAI

from app.http.body import StrictRoute
from app.http.sound import encoded
from engine import AudioPart, Engine, ImagePart, TextPart
from engine import Request as EngineRequest
from tests.app.http.test_sound import WAVE, decoded
from tests.app.http.wav import wav_of
from tests.app.media.test_videos import url, video
from tests.app.rig import Running, eventually, running, script_spec

PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URL = "/v1/chat/completions"
FRAME_S = 0.04
SPOKEN: dict[str, Any] = {"modalities": ["text", "audio"]}
LONG: dict[str, Any] = {**SPOKEN, "max_tokens": 5000}


def user(*content: Any) -> list[Any]:
    return [{"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}]


async def ask(openai: AsyncOpenAI, messages: Any, **fields: Any) -> Any:
    return await openai.chat.completions.create(model="script", messages=messages, **fields)


async def streamed(openai: AsyncOpenAI, messages: Any, **fields: Any) -> list[Any]:
    return [chunk async for chunk in await ask(openai, messages, stream=True, **fields)]


def requests_of(server: Running, monkeypatch: pytest.MonkeyPatch) -> list[EngineRequest]:
    """The requests that the engine gets from now on."""
    asked: list[EngineRequest] = []
    engine = server.service.engine_host.engine
    assert isinstance(engine, Engine)
    whole = engine.open

    def opened(request: EngineRequest, inputs: Any = None) -> Any:
        asked.append(request)
        return whole(request, inputs)

    monkeypatch.setattr(engine, "open", opened)
    return asked


async def post(server: Running, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post(URL, json={"model": "script", "messages": user("say: hello"), **body})


async def test_a_typed_answer(openai: AsyncOpenAI) -> None:
    done = await ask(openai, user("say: one two three"))
    assert done.object == "chat.completion"
    assert done.model == "script"
    assert done.choices[0].message.content == "one two three"
    assert done.choices[0].message.audio is None
    assert done.choices[0].finish_reason == "stop"
    assert done.usage.completion_tokens == 3
    assert done.usage.prompt_tokens > 0
    assert done.usage.total_tokens == done.usage.prompt_tokens + 3


async def test_a_typed_answer_streams(openai: AsyncOpenAI) -> None:
    chunks = await streamed(openai, user("say: one two three"), stream_options={"include_usage": True})
    assert [chunk.object for chunk in chunks] == ["chat.completion.chunk"] * 5
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in chunks[:4]] == ["one ", "two ", "three", None]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:4]] == [None, None, None, "stop"]
    assert not chunks[4].choices
    assert chunks[4].usage.completion_tokens == 3
    assert all(chunk.usage is None for chunk in chunks[:4])


async def test_without_being_asked_a_stream_tells_no_usage(openai: AsyncOpenAI) -> None:
    chunks = await streamed(openai, user("say: one"))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


async def test_a_spoken_answer(openai: AsyncOpenAI) -> None:
    done = await ask(openai, user("say: one two"), **SPOKEN, audio={"voice": "tone", "format": "wav"})
    message = done.choices[0].message
    assert message.content is None
    assert message.audio.transcript == "one two"
    sound = decoded(base64.b64decode(message.audio.data))
    assert len(sound) == 2 * 2 * FRAME_S * 24_000
    assert np.abs(sound).max() > 0.1
    assert done.usage.completion_tokens_details.audio_tokens == 4
    assert done.parley["ledger"]["ttfa_ms"] > 0


@pytest.mark.parametrize("format", ["mp3", "flac", "opus", "aac", "pcm16"])
async def test_a_spoken_answer_has_the_format_that_was_asked_for(format: Any, openai: AsyncOpenAI) -> None:
    done = await ask(openai, user("say: one two three"), **SPOKEN, audio={"voice": "tone", "format": format})
    data = base64.b64decode(done.choices[0].message.audio.data)
    sound = decoded(wav_of(data) if format == "pcm16" else data)
    assert abs(len(sound) - 3 * 2 * FRAME_S * 24_000) < 3000
    assert np.abs(sound).max() > 0.1


async def test_a_spoken_answer_streams(openai: AsyncOpenAI) -> None:
    """The transcript and the samples come as they are made, in the delta's ``audio``."""
    asked: Any = {"audio": {"voice": "tone", "format": "pcm16"}, "stream_options": {"include_usage": True}}
    chunks = await streamed(openai, user("say: one two"), **SPOKEN, **asked)
    pieces = [chunk.choices[0].delta.to_dict().get("audio") for chunk in chunks if chunk.choices]
    pieces = [piece for piece in pieces if piece]
    assert len({piece["id"] for piece in pieces}) == 1
    assert "".join(piece.get("transcript", "") for piece in pieces) == "one two"
    data = [base64.b64decode(piece["data"]) for piece in pieces if "data" in piece]
    assert len(data) > 1
    assert len(b"".join(data)) == 2 * 2 * FRAME_S * 48_000
    assert pieces[-1]["expires_at"] > 1_000_000_000
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens_details.audio_tokens == 4


async def test_a_tool_is_called_and_its_result_answered(openai: AsyncOpenAI) -> None:
    tool = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
    done = await ask(openai, user('tool time {"zone": "UTC"}'), tools=[tool], tool_choice="auto")
    call = done.choices[0].message.tool_calls[0]
    assert done.choices[0].finish_reason == "tool_calls"
    assert (call.function.name, call.function.arguments) == ("time", '{"zone": "UTC"}')
    messages = [
        *user("what time is it?"),
        done.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "noon"},
        *user("say: it is noon"),
    ]
    assert (await ask(openai, messages)).choices[0].message.content == "it is noon"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
async def test_a_call_that_must_be_made_is_or_the_answer_is_refused(choice: Any, stream: bool, server: Running) -> None:
    tools = [{"type": "function", "function": {"name": "time"}}]
    fields: dict[str, Any] = {"tools": tools, "tool_choice": choice, "stream": stream}
    assert '"time"' in (await post(server, messages=user("tool time {}"), **fields)).text
    refused = await post(server, **fields)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert "requires a tool call" in refused.json()["error"]["message"]


async def test_a_tool_that_must_be_called_must_be_there(server: Running) -> None:
    for fields in ({"tool_choice": "required"}, {"tool_choice": {"function": {"name": "time"}}}):
        refused = await post(server, **fields)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["param"]) == (400, "invalid_value", "tool_choice")


async def test_a_tool_call_streams(openai: AsyncOpenAI) -> None:
    chunks = await streamed(openai, user('tool time {"zone": "UTC"}'))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [call.function.name for call in calls] == ["time", *([None] * (len(calls) - 1))]
    assert "".join(call.function.arguments for call in calls) == '{"zone": "UTC"}'
    assert {call.index for call in calls} == {0}
    assert calls[0].id
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("format", ["wav", "mp3", "flac"])
async def test_speech_is_heard(format: Any, openai: AsyncOpenAI) -> None:
    data = base64.b64encode(encoded(WAVE, format)).decode()
    part = {"type": "input_audio", "input_audio": {"data": data, "format": format}}
    done = await ask(openai, user(part, {"type": "text", "text": "what was that?"}))
    assert done.choices[0].message.content == "I heard 1.0 seconds." if format != "mp3" else True
    assert done.choices[0].message.content.startswith("I heard 1.")
    assert done.usage.prompt_tokens_details.audio_tokens > 0


async def test_speech_of_earlier_messages_is_transcribed(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request itself transcribes only the last message, and a language model can't read the others."""
    asked = requests_of(server, monkeypatch)
    speech = sound(base64.b64encode(encoded(WAVE, "wav")).decode())
    answer = {"role": "assistant", "content": "I see."}
    done = await post(server, messages=[*user(speech, speech), answer, *user(speech)])
    assert done.json()["choices"][0]["message"]["content"] == "I heard 1.0 seconds."
    heard, answered = asked
    assert heard.wants == {"transcript"}
    parts = [part for message in answered.messages for part in message.parts if isinstance(part, AudioPart)]
    assert [part.transcript for part in parts] == ["2.0 seconds", "", None]


async def test_pictures_and_every_role_are_taken(openai: AsyncOpenAI) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        *user("hello"),
        {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
        *user({"type": "image_url", "image_url": {"url": PIXEL}}, {"type": "text", "text": "say: a dot"}),
    ]
    assert (await ask(openai, messages)).choices[0].message.content == "a dot"


async def test_a_video_is_some_pictures_and_its_sound_to_a_model_that_sees_no_video(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests_of(server, monkeypatch)
    part = {"type": "video_url", "video_url": {"url": url(video(6.0, fps=4))}}
    written = await post(server, messages=user({"type": "text", "text": "say: seen"}, part))
    spoken = await post(server, messages=user(part))
    said = [answer.json()["choices"][0]["message"]["content"] for answer in (written, spoken)]
    assert said == ["seen", "I heard 6.0 seconds."]
    for request, kinds in zip(asked, ([TextPart, *3 * [ImagePart]], [*3 * [ImagePart], AudioPart]), strict=True):
        parts = request.messages[-1].parts
        assert [type(part) for part in parts] == kinds
        levels = [part.pixels.mean() for part in parts if isinstance(part, ImagePart)]
        np.testing.assert_allclose(levels, [20, 87, 153], atol=12)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_an_answer_ends_at_its_limit(field: str, openai: AsyncOpenAI) -> None:
    done = await ask(openai, user("long 20"), **{field: 5})
    assert done.choices[0].finish_reason == "length"
    assert done.usage.completion_tokens == 5


@pytest.mark.parametrize("stop", ["three", ["xyz", "three", "four"], "ree"])
async def test_an_answer_ends_before_a_stop_string(stop: Any, openai: AsyncOpenAI) -> None:
    left = "one two th" if stop == "ree" else "one two "
    done = await ask(openai, user("say: one two three four"), stop=stop)
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == (left, "stop")
    assert done.usage.completion_tokens > 0
    chunks = await streamed(openai, user("say: one two three four"), stop=stop)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == left
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_the_sound_of_a_stopped_answer_ends_with_its_text(openai: AsyncOpenAI) -> None:
    spoken: dict[str, Any] = {**SPOKEN, "audio": {"voice": "tone", "format": "pcm16"}, "stop": "three"}
    done = await ask(openai, user("say: one two three four"), **spoken)
    assert done.choices[0].message.audio.transcript == "one two "
    assert len(base64.b64decode(done.choices[0].message.audio.data)) == 2 * 2 * FRAME_S * 48_000
    assert done.choices[0].finish_reason == "stop"


async def test_a_stopped_answer_is_not_made_to_its_end(server: Running) -> None:
    answer = await post(server, messages=user("long 5000"), stop="word7", max_tokens=4000)
    choice, usage = answer.json()["choices"][0], answer.json()["usage"]
    assert choice["message"]["content"].endswith("word6 ")
    assert 0 < usage["completion_tokens"] < 4000
    assert usage["prompt_tokens"] > 0
    assert server.metric("parley_http_answers_total", status="completed") == 1
    await server.empty()


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_instructions_may_come_last(role: str, openai: AsyncOpenAI) -> None:
    brief = {"role": role, "content": "Be brief."}
    assert (await ask(openai, [*user("say: one"), brief])).choices[0].message.content == "one"
    speech = {"type": "input_audio", "input_audio": {"data": base64.b64encode(encoded(WAVE, "wav")).decode()}}
    assert (await ask(openai, [*user(speech), brief, brief])).choices[0].message.content == "I heard 1.0 seconds."
    assert (await ask(openai, [brief])).choices[0].finish_reason == "stop"
    call = {"id": "c", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    told = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "noon"}]
    assert (await ask(openai, [*user("x"), *told, brief])).choices[0].message.content == "The tool says: noon"


async def test_an_answer_that_breaks_is_an_error_whole_or_streamed(openai: AsyncOpenAI) -> None:
    with pytest.raises(APIStatusError) as broken:
        await ask(openai, user("fail"))
    assert (broken.value.status_code, broken.value.code) == (500, "stage_failed")
    with pytest.raises(APIError, match="this answer fails"):
        await streamed(openai, user("fail"))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_answer(stream: bool, server: Running) -> None:
    asking = asyncio.create_task(post(server, messages=user("long 5000"), stream=stream, **LONG), name="asking")
    await eventually(lambda: any(server._leased()))
    asking.cancel()
    await asyncio.wait([asking])
    await eventually(lambda: server.metric("parley_http_answers_total", status="cancelled") == 1)
    await server.empty()
    assert server.metric("parley_http_answers_total", status="completed") == 0


URL_PART = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}
OLD_ANSWER = {"role": "assistant", "audio": {"id": "x"}}


def sound(data: str) -> Any:
    return {"type": "input_audio", "input_audio": {"data": data}}


def film(url: str) -> Any:
    return {"type": "video_url", "video_url": {"url": url}}


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"messages": []}, 400, "invalid_value", "messages"),
        ({"messages": user({"type": "file", "file": {}})}, 400, "invalid_value", "messages.0.content.0"),
        ({"messages": user({"type": "text"})}, 400, "missing_required_parameter", "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "invalid_value", "messages.0.content"),
        ({"messages": [{"role": "king", "content": "x"}]}, 400, "invalid_value", "messages.0"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "invalid_value", "messages.0.role"),
        ({"messages": [OLD_ANSWER, *user("y")]}, 400, "invalid_value", "messages.0.content"),
        ({**SPOKEN, "audio": {"format": "wma"}}, 400, "invalid_value", "audio.format"),
        ({"n": 2}, 400, "unsupported_parameter", "n"),
        ({"stop": ""}, 400, "invalid_value", "stop"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 400, "invalid_value", "stop"),
        ({"response_format": {"type": "json_object"}}, 400, "unsupported_value", "response_format"),
        ({"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
        ({"seed": 2**63}, 400, "invalid_value", "seed"),
        ({"messages": user(URL_PART)}, 400, "invalid_value", None),
        ({"messages": user(sound("????"))}, 400, "invalid_value", None),
        ({"messages": user(sound("AAAA"))}, 400, "invalid_value", None),
        ({"messages": user(film("http://127.0.0.1/x.mp4"))}, 400, "invalid_value", None),
        ({"messages": user(film("data:video/mp4;base64,AAAA"))}, 400, "invalid_value", None),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_mistakes_are_told_in_the_api_s_shape(
    fields: Any, status: int, code: str, param: str | None, shared: Running
) -> None:
    answer = await post(shared, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            user({"type": "file"})[0],
            "type 'file' is unknown; choose one of 'text', 'input_audio', 'image_url', ",
        ),
        (user({"type": "text", "text": 5})[0], "messages.0.content.0.text: Input should be a valid string."),
        (user({"text": "x"})[0], "messages.0.content.0: type is missing."),
        ({"role": "king"}, "role 'king' is unknown; choose one of 'system', 'developer', 'user', "),
        ({"role": "assistant", "content": [{"type": "input_audio"}]}, "choose one of 'text', 'refusal'."),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_part_that_is_not_known_is_told_truly(message: Any, told: str, shared: Running) -> None:
    answer = await post(shared, messages=[message, *user("x")])
    assert told in answer.json()["error"]["message"]


async def test_what_changes_nothing_is_taken(server: Running) -> None:
    fields = {"n": 1, "stop": None, "frequency_penalty": 0.0, "user": "me", "store": False, "service_tier": "auto"}
    assert (await post(server, **fields)).status_code == 200


@pytest.mark.fault("I9.2")
async def test_many_pictures_are_bounded_before_they_fill_the_memory() -> None:
    """A picture of 48 MB in 50 kB, and more than one of them."""
    async with running(script_spec(limits={"conversation_mb": 0.000004})) as server:
        one = {"type": "image_url", "image_url": {"url": PIXEL}}
        assert (await post(server, messages=user(one, {"type": "text", "text": "say: x"}))).status_code == 200
        answer = await post(server, messages=user(one, one))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


async def test_a_body_over_the_cap_is_refused_as_it_comes(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrictRoute, "max_bytes", 2**20)

    async def endless() -> AsyncGenerator[bytes]:
        for _ in range(4):
            yield b" " * 2**20

    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post(URL, content=endless(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_spoken_answer_is_no_longer_than_the_server_allows(stream: bool) -> None:
    body = {"model": "script", "messages": user("long 20"), "modalities": ["text", "audio"], "stream": stream}
    async with (
        running(script_spec(limits={"answer_s": 0.4})) as server,
        httpx.AsyncClient(base_url=server.http) as http,
    ):
        answer = await http.post(URL, json={**body, "audio": {"voice": "tone", "format": "pcm16"}})
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line not in ("", "data: [DONE]")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    sounds = [choice.get("delta", choice.get("message")).get("audio") or {} for choice in choices]
    assert sum(len(base64.b64decode(sound.get("data", ""))) for sound in sounds) == 0.4 * 48_000
    assert choices[-1]["finish_reason"] == "length"


async def test_answers_have_a_limit_of_their_own() -> None:
    async with running(script_spec(limits={"answers": 1, "sessions": 1})) as server:
        async with _under_way(server):
            second = await post(server)
            assert (second.status_code, second.json()["error"]["code"]) == (503, "server_full")
            assert second.headers["retry-after"]
            with server.service.admission.admit():
                pass  # a session's place is another one
        await server.empty()
        assert (await post(server)).status_code == 200


@asynccontextmanager
async def _under_way(server: Running) -> AsyncGenerator[None]:
    """A long answer, begun and not yet ended."""
    body = {"model": "script", "messages": user("long 3000"), "stream": True, **LONG}
    async with httpx.AsyncClient(base_url=server.http) as http, http.stream("POST", URL, json=body) as response:
        await anext(response.aiter_lines())
        yield


async def test_an_answer_that_finds_no_place_is_refused_and_counted_nowhere_else() -> None:
    """It came to no request: what is counted as failed is what broke."""
    async with running(script_spec(limits={"wait_s": 1e-9, "answers_share": 1e-9})) as server:
        async with (
            server.service.admission.http_slots.hold(lambda: {"thinker": 1}, patient=True),
            httpx.AsyncClient(base_url=server.http, timeout=30) as http,
        ):
            answer = await http.post("/v1/chat/completions", json={"model": "m", "messages": user("hi")})
            assert answer.status_code == 503
        assert server.metric("parley_http_answers_total", status="failed") == 0
        assert server.metric("parley_sessions_refused_total", why="server_full") == 1
