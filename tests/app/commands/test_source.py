"""An engine of the command's own and a running server answer the same requests in the same way."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.commands.answer import ReceivedAnswer, Show, answer
from app.commands.server import Address, ServerError
from app.commands.sink import Nowhere
from app.commands.source import Answerer, Target, opened
from app.commands.wire import completion_body
from engine import (
    AudioPart,
    EngineError,
    ImagePart,
    Message,
    ModelInfo,
    Request,
    RequestError,
    Sampling,
    TextPart,
    ToolDefinition,
)
from tests.app.rig import Running, eventually, keys_file, running, script_spec

WORD = 2 * 960  # samples: two codec frames


@pytest.fixture(params=["engine", "server"])
async def target(request: pytest.FixtureRequest, server: Running) -> Target:
    return script_spec() if request.param == "engine" else Address(server.http)


@pytest.fixture
async def source(target: Target) -> AsyncGenerator[Answerer]:
    async with opened(target) as one:
        yield one


def asked(*parts: Any, **fields: Any) -> Request:
    messages = (Message("system", (TextPart("Be kind."),)), Message("user", parts))
    return Request(id="r", session="s", messages=messages, **fields)


def told(text: str) -> Request:
    return Request(id="r", session="s", messages=(), say=text, voice="tone")


async def answered(source: Answerer, request: Request, heard: list[str] | None = None) -> ReceivedAnswer:
    result = ReceivedAnswer()
    show = Show(transcript=(heard if heard is not None else []).append)
    await answer(source, request, Nowhere(), show, result)
    return result


async def test_a_text_is_spoken_as_it_stands(source: Answerer) -> None:
    result = await answered(source, told("one two three"))
    assert sum(map(len, result.waves)) == 3 * WORD
    assert np.abs(np.concatenate(result.waves)).max() == pytest.approx(0.2, abs=0.01)
    assert result.ledger is not None
    assert list(result.ledger.terms) == [
        "queue", "ears", "thinker_prefill", "thinker_tokens", "talker", "code2wav", "packet",
    ]  # fmt: skip


async def test_a_question_has_text_sound_and_a_ledger(source: Answerer) -> None:
    result = await answered(source, asked(TextPart("say: one two"), voice="tone", sampling=Sampling(greedy=True)))
    assert (result.text, result.finish) == ("one two", "stop")
    assert sum(map(len, result.waves)) == 2 * WORD
    assert result.ledger is not None
    assert result.ledger.ttfa_ms > 0


async def test_a_recording_is_heard_and_a_picture_taken(source: Answerer) -> None:
    heard: list[str] = []
    picture, speech = ImagePart(np.zeros((8, 6, 3), np.uint8)), AudioPart(np.zeros(8000, np.int16))
    result = await answered(source, asked(picture, speech), heard)
    assert heard == ["0.5 seconds"]
    assert result.text == "I heard 0.5 seconds."


async def test_a_limit_and_a_call_are_told(source: Answerer) -> None:
    cut = await answered(source, asked(TextPart("long 9"), max_text_tokens=2))
    assert (cut.text.strip(), cut.finish) == ("word0 word1", "length")
    call = await answered(source, asked(TextPart('tool clock {"zone": "UTC"}'), tools=(ToolDefinition("clock"),)))
    (made,) = call.calls
    assert (made.name, made.arguments, call.finish) == ("clock", '{"zone": "UTC"}', "tool")


async def test_a_failure_is_one_error_and_what_was_said_is_kept(source: Answerer) -> None:
    result = ReceivedAnswer()
    with pytest.raises(EngineError, match="the script says that this answer fails"):
        await answer(source, asked(TextPart("fail")), Nowhere(), Show(), result)
    assert result.text == "this is "


async def test_a_voice_that_is_not_there_is_told_before_anything_starts(target: Target) -> None:
    with pytest.raises(RequestError, match=r"script has no voice 'tune' \(did you mean 'tone'\?\)"):
        async with opened(target, "tune"):
            pass


async def test_a_stage_s_file_as_a_voice_is_told_how_to_use_it(target: Target) -> None:
    with pytest.raises(RequestError, match=r"sine.py:Sine is a stage: use `parley serve --voice ./mine/sine.py:Sine`"):
        async with opened(target, "./mine/sine.py:Sine"):
            pass


async def test_leaving_an_answer_ends_it_on_the_server(server: Running) -> None:
    async with opened(Address(server.http)) as source:
        async with source.open(asked(TextPart("long 5000"))) as chunks:
            async for _ in chunks:
                break
        await server.empty()
        await eventually(lambda: server.metric("parley_http_answers_total", status="cancelled") == 1)


async def test_a_key_is_asked_for_read_and_refused_in_one_sentence_each(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("sk-two-0123456789\n")
    async with running(script_spec(keys_file=keys_file(tmp_path, "sk-one-0123456789"))) as server:
        for key_file, sentence in ((None, "with --key-file"), (str(tmp_path / "wrong"), "rejected the key in")):
            with pytest.raises(ServerError, match=sentence):
                async with opened(Address(server.http, key_file)):
                    pass
        async with opened(Address(server.http + "/v1/", str(tmp_path / "keys"))) as source:
            assert (await answered(source, asked(TextPart("say: open")))).text == "open"


async def test_a_wrong_address_is_one_sentence(server: Running) -> None:
    secure = server.http.replace("http", "https")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[1]
    for url, sentence in (
        ("127.0.0.1:8000", "is not a valid server URL"),
        (f"http://127.0.0.1:{nobody}", "no server at"),
        (secure, "does not use TLS"),
        (f"{server.http}/elsewhere", "is not a Parley server"),
    ):
        with pytest.raises(ServerError, match=sentence):
            async with opened(Address(url)):
                pass


def test_a_picture_too_large_for_a_server_as_it_is_goes_as_a_jpeg() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (2000, 2400, 3), np.uint8)
    model = ModelInfo(name="m", abilities=frozenset({"image"}))
    body = completion_body(asked(ImagePart(noise), ImagePart(noise[:9, :7])), model)
    large, small = (part["image_url"]["url"] for part in body["messages"][1]["content"])
    assert large.startswith("data:image/jpeg;base64,")
    assert len(large) < 10 * 2**20 * 4 / 3
    assert small.startswith("data:image/png;base64,")
    assert body["audio"] is None
