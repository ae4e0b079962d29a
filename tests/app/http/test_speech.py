"""``POST /v1/audio/speech``, through the official client."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from typing import Any

import httpx
import numpy as np
import pytest
from openai import APIStatusError, AsyncOpenAI

from app.http.speech import SLOWEST_CHARS_S, spoken_chars
from engine.worker.tts.answer_audio import LETTER_S
from tests.app.http.test_sound import decoded
from tests.app.http.wav import wav_of
from tests.app.rig import Running, eventually, running, script_spec

URL = "/v1/audio/speech"
WORD_S = 2 * 0.04  # two codec frames
LONG = "a " * 2048
"""8 MB of samples: more than the sockets between a server and its client hold."""
SECONDS_OF_LONG = 2048 * WORD_S


async def post(server: Running, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post(URL, json={"model": "script", "input": "one two three", "voice": "tone", **body})


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg; codecs=opus"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
        ("wav", "audio/wav"),
        ("pcm", "audio/pcm; rate=24000; channels=1"),
    ],
)
async def test_every_format_of_the_official_client(format: Any, kind: str, openai: AsyncOpenAI) -> None:
    asked: Any = {"model": "script", "voice": "tone", "input": "one two three", "response_format": format}
    async with openai.audio.speech.with_streaming_response.create(**asked) as response:
        assert response.headers["content-type"] == kind
        assert "content-length" not in response.headers
        pieces = [piece async for piece in response.iter_bytes()]
    data = b"".join(pieces)
    sound = decoded(wav_of(data) if format == "pcm" else data)
    assert abs(len(sound) / 24_000 - 3 * WORD_S) < 0.12  # what an MP3 or AAC encoder pads with
    assert np.abs(sound).max() > 0.1


async def test_the_first_sound_leaves_before_the_last_is_made(server: Running) -> None:
    body = {"model": "script", "input": "word " * 800, "response_format": "pcm"}
    async with httpx.AsyncClient(base_url=server.http) as http, http.stream("POST", URL, json=body) as response:
        first = await anext(response.aiter_raw())
        assert any(server._leased())
    assert 0 < len(first) < 800 * WORD_S * 48_000 / 4


async def test_the_longest_text_is_said_to_its_end(server: Running) -> None:
    answer = await post(server, input=LONG, response_format="pcm")
    assert len(answer.content) == round(SECONDS_OF_LONG * 48_000)


async def test_events_carry_the_same_samples(server: Running) -> None:
    whole = await post(server, response_format="pcm")
    answer = await post(server, response_format="pcm", stream_format="sse")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == whole.content
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["output_tokens"] == 3 + 6  # words, and codec frames


@pytest.mark.fault("N4.1")
async def test_a_client_that_leaves_ends_its_speech(server: Running) -> None:
    body = {"model": "script", "input": LONG, "response_format": "wav"}
    async with httpx.AsyncClient(base_url=server.http) as http, http.stream("POST", URL, json=body) as response:
        assert (await anext(response.aiter_raw())).startswith(b"RIFF")
    await eventually(lambda: server.metric("parley_http_answers_total", status="cancelled") == 1)
    await server.empty()


def deaf(port: int) -> socket.socket:
    """A connection that takes next to nothing before it is read."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", port))
    one.setblocking(False)
    return one


@pytest.mark.bench  # alone: beside others it meets their load
@pytest.mark.fault("N2.3")
async def test_a_client_that_does_not_read_holds_nobody_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left after a while, and what it held is free; others are served meanwhile."""
    monkeypatch.setattr("app.http.live.SLOW_S", 0.5)
    _, writer = await asyncio.open_connection(sock=deaf(server.port), limit=1)
    body = json.dumps({"model": "script", "input": LONG, "response_format": "wav"}).encode()
    head = (
        f"POST {URL} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    )
    writer.write(head.encode() + b"\r\n" + body)
    try:
        await eventually(lambda: server.service.admission.answers == 1)
        assert (await post(server)).status_code == 200
        await eventually(lambda: server.metric("parley_http_answers_total", status="cancelled") == 1)
        await eventually(lambda: not server.server.server_state.connections)
    finally:
        writer.close()


async def test_a_drain_lets_speech_under_way_end() -> None:
    async with running(script_spec()) as server:
        body = {"model": "script", "input": "word " * 200, "response_format": "pcm"}
        async with httpx.AsyncClient(base_url=server.http) as http, http.stream("POST", URL, json=body) as response:
            pieces = response.aiter_raw()
            first = await anext(pieces)
            server.server.leave()
            rest = [piece async for piece in pieces]
        assert len(first + b"".join(rest)) == round(200 * WORD_S * 48_000)


async def test_a_voice_may_be_an_object_or_left_out(server: Running) -> None:
    assert (await post(server, voice={"id": "tone"})).status_code == 200
    assert (await post(server, voice=None)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"voice": ["alloy"]}, 400, "invalid_value", "voice"),
        ({"input": ""}, 400, "invalid_value", "input"),
        ({"input": " \n"}, 400, "invalid_value", "input"),
        ({"input": "x" * 4097}, 400, "invalid_value", "input"),
        ({"speed": 0.2}, 400, "invalid_value", "speed"),
        ({"speed": 4.1}, 400, "invalid_value", "speed"),
        ({"response_format": "wma"}, 400, "invalid_value", "response_format"),
        ({"stream_format": "carrier-pigeon"}, 400, "invalid_value", "stream_format"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_mistakes_are_told(fields: Any, status: int, code: str, param: str, shared: Running) -> None:
    answer = await post(shared, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)


async def test_the_official_client_raises_what_it_knows(openai: AsyncOpenAI) -> None:
    with pytest.raises(APIStatusError) as refused:
        await openai.audio.speech.create(model="tts-1", voice="tone", input=" ")
    assert refused.value.status_code == 400


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("777,777, " * 4, "seven hundred and seventy-seven thousand, seven hundred and seventy-seven, " * 4),
        ("WWW, " * 9, "double you double you double you, " * 9),
        ("50% & 7$ ", "fifty percent and seven dollars "),
    ],
)
def test_the_longest_that_a_text_may_take_is_that_of_all_its_words(text: str, said: str) -> None:
    """A voice may be twice as slow as those here are."""
    assert spoken_chars(text) / SLOWEST_CHARS_S > 2 * LETTER_S * sum(map(str.isalpha, said))
    assert spoken_chars("Good morning to you") < 1.2 * len("Good morning to you")
