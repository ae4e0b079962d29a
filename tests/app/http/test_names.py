"""Names of models and voices over HTTP: the loaded ones serve all others, and the answer's head says so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.http.names import MAPPED, MODEL, VOICE
from app.http.sound import encoded
from tests.app.http.test_sound import WAVE
from tests.app.rig import Running, running, script_spec

CHAT = [
    "gpt-3.5-turbo",
    "gpt-3.5-turbo-0125",
    "gpt-4",
    "gpt-4-turbo",
    "gpt-4-vision-preview",
    "gpt-4.5-preview",
    "gpt-4o",
    "gpt-4o-2024-08-06",
    "gpt-4o-mini",
    "gpt-4o-audio-preview",
    "gpt-4o-mini-audio-preview",
    "gpt-audio",
    "gpt-audio-mini",
    "gpt-4.1",
    "gpt-4.1-nano",
    "gpt-5",
    "gpt-5-mini",
    "gpt-5.1",
    "chatgpt-4o-latest",
    "o1",
    "o1-mini",
    "o3",
    "o4-mini",
    "gpt-oss-120b",
    "gpt-realtime",
]
SPEECH = ["tts-1", "tts-1-hd", "tts-1-1106", "tts-1-hd-1106", "gpt-4o-mini-tts", "gpt-4o-mini-tts-2025-12-15"]
HEARING = ["whisper-1", "gpt-transcribe", "gpt-4o-transcribe", "gpt-4o-mini-transcribe", "gpt-4o-transcribe-diarize"]
VOICES = [
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
]
ODD = ["", " ", "a/b", "Ω", "x" * 5000, "script\r\nset-cookie: a=b"]


async def chat(server: Running, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "say: hello"}], **fields}
    return await post(server, "/v1/chat/completions", json=body)


async def speak(server: Running, model: str, voice: Any = None) -> httpx.Response:
    body = {"model": model, "voice": voice, "input": "hello", "response_format": "pcm"}
    return await post(server, "/v1/audio/speech", json=body)


async def hear(server: Running, model: str) -> httpx.Response:
    files = {"file": ("one.wav", encoded(WAVE, "wav"))}
    return await post(server, "/v1/audio/transcriptions", data={"model": model}, files=files)


async def post(server: Running, path: str, **how: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post(path, **how)


def said(answer: httpx.Response) -> tuple[int, str | None, str | None, str | None]:
    return answer.status_code, answer.headers.get(MODEL), answer.headers.get(VOICE), answer.headers.get(MAPPED)


@pytest.mark.parametrize("name", [*CHAT, *ODD])
@pytest.mark.asyncio(loop_scope="module")
async def test_every_chat_model_s_name_is_answered(name: str, shared: Running) -> None:
    answer = await chat(shared, name)
    assert said(answer) == (200, "script", None, "model")
    assert answer.json()["model"] == "script"
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_name_that_is_not_loaded_is_logged(shared: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "parley")
    await speak(shared, "tts-1", "alloy")
    assert "http.model_mapped" in caplog.text
    assert "asked=tts-1 loaded=script" in caplog.text
    assert "http.voice_mapped" in caplog.text
    assert "asked=alloy loaded=tone" in caplog.text
    caplog.clear()
    await speak(shared, "script", "tone")
    assert "mapped" not in caplog.text


@pytest.mark.parametrize("name", SPEECH)
@pytest.mark.asyncio(loop_scope="module")
async def test_every_speech_model_s_name_is_spoken(name: str, shared: Running) -> None:
    assert said(await speak(shared, name, "tone")) == (200, "script", "tone", "model")


@pytest.mark.parametrize("name", [*VOICES, *ODD])
@pytest.mark.asyncio(loop_scope="module")
async def test_every_voice_s_name_is_spoken(name: str, shared: Running) -> None:
    answer = await speak(shared, "script", name)
    assert said(answer) == (200, "script", "tone", "voice")
    assert answer.content == (await speak(shared, "script", {"id": "tone"})).content


@pytest.mark.parametrize("name", HEARING)
@pytest.mark.asyncio(loop_scope="module")
async def test_every_hearing_model_s_name_hears(name: str, shared: Running) -> None:
    answer = await hear(shared, name)
    assert said(answer) == (200, "script", None, "model")
    assert answer.json()["text"] == "1.0 seconds"


@pytest.mark.asyncio(loop_scope="module")
async def test_loaded_names_are_told_as_they_are(shared: Running) -> None:
    assert said(await chat(shared, "script")) == (200, "script", None, None)
    assert said(await speak(shared, "script")) == (200, "script", "tone", None)
    assert said(await speak(shared, "tts-1", "alloy")) == (200, "script", "tone", "model, voice")
    spoken = await chat(shared, "gpt-audio", modalities=["text", "audio"], audio={"voice": {"id": "alloy"}})
    assert said(spoken) == (200, "script", "tone", "model, voice")
    assert said(await chat(shared, "gpt-4o", stream=True)) == (200, "script", None, "model")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict() -> AsyncGenerator[Running]:
    async with running(script_spec(strict_names=True)) as one:
        yield one


@pytest.mark.asyncio(loop_scope="module")
async def test_strict_names_are_errors(strict: Running) -> None:
    for answer in (await chat(strict, "gpt-4o"), await speak(strict, "tts-1", "tone"), await hear(strict, "whisper-1")):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert "'script'" in error["message"]
    wrong = await speak(strict, "script", "alloy")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "voice")
    assert "choose one of tone" in wrong.json()["error"]["message"]
    spoken = await chat(strict, "script", modalities=["text", "audio"], audio={"voice": "alloy"})
    assert (spoken.status_code, spoken.json()["error"]["param"]) == (400, "audio.voice")
    assert said(await speak(strict, "script", "tone")) == (200, "script", "tone", None)


async def test_a_page_may_read_what_answered() -> None:
    async with running(script_spec(allowed_origins=["https://a.example"])) as server:
        url, headers = f"{server.http}/v1/models", {"origin": "https://a.example"}
        async with httpx.AsyncClient() as http:
            exposed = (await http.get(url, headers=headers)).headers["access-control-expose-headers"]
    assert {MODEL, VOICE, MAPPED} <= set(exposed.split(", "))


@pytest.mark.asyncio(loop_scope="module")
async def test_the_voices_are_listed(shared: Running) -> None:
    async with httpx.AsyncClient(base_url=shared.http) as http:
        voices, models = await http.get("/v1/audio/voices"), await http.get("/v1/audio/models")
    assert [one["id"] for one in voices.json()["voices"]] == ["tone"]
    assert set(voices.json()["voices"][0]) == {"id", "name", "language"}
    assert models.json() == {"models": [{"id": "script"}]}
