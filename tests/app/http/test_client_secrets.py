"""``POST /v1/realtime/client_secrets``: what it answers, and what its keys open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.app.rig import Client, Running, eventually, keys_file, running, script_spec, talking

PATH = "/v1/realtime/client_secrets"


@pytest.fixture
async def locked(tmp_path: Path) -> AsyncGenerator[Running]:
    """A server that asks for a key."""
    async with running(
        script_spec(keys_file=keys_file(tmp_path, "sk-main-0123456789"), limits={"secrets": 3})
    ) as server:
        yield server


async def post(server: Running, body: Any, key: str = "sk-main-0123456789", path: str = PATH) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post(path, content=content, headers=headers)


async def status_of_socket(server: Running, key: str) -> int:
    with pytest.raises(InvalidStatus) as refused:
        await connect(server.ws, additional_headers={"Authorization": f"Bearer {key}"})
    return refused.value.response.status_code


@pytest.mark.parametrize("value", [str(10**20), '{"a":' * 260 + "1" + "}" * 260])
async def test_settings_that_could_not_be_told_make_no_secret(value: str, locked: Running) -> None:
    """A socket that was opened with such a secret was dropped without a word."""
    answer = await post(locked, f'{{"session":{{"prompt":{{"a":{value}}}}}}}'.encode())
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert not locked.service.secrets._alive


async def test_the_official_client_makes_one_and_talks_with_it(locked: Running) -> None:
    url = f"{locked.http}/v1"
    session: Any = {"type": "realtime", "instructions": "Be kind.", "output_modalities": ["text"]}
    async with AsyncOpenAI(api_key="sk-main-0123456789", base_url=url) as backend:
        secret: Any = await backend.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 30}, session=session
        )
    assert secret.session.id.startswith("sess_")
    assert secret.session.instructions == "Be kind."
    assert secret.expires_at > 1_000_000_000
    page = AsyncOpenAI(api_key=secret.value, base_url=url, websocket_base_url=url.replace("http", "ws"))
    async with page, page.realtime.connect(model="gpt-realtime") as connection:
        created: Any = await connection.recv()
    assert created.session.instructions == "Be kind."
    assert created.session.output_modalities == ["text"]
    assert created.session.model == "gpt-realtime"


async def test_a_transcription_session_may_have_one(locked: Running) -> None:
    url = f"{locked.http}/v1"
    async with AsyncOpenAI(api_key="sk-main-0123456789", base_url=url) as backend:
        secret: Any = await backend.realtime.client_secrets.create(session={"type": "transcription"})
    assert secret.session.type == "transcription"
    headers = {"Authorization": f"Bearer {secret.value}"}
    async with connect(locked.ws, additional_headers=headers) as socket:
        assert (await Client(socket).next())["session"]["type"] == "transcription"


@pytest.mark.fault("S2.2")
async def test_it_opens_any_number_of_sessions_and_nothing_else(locked: Running) -> None:
    secret = (await post(locked, {"session": {"audio": {"output": {"speed": 1.25}}}})).json()
    subprotocols = ["realtime", f"openai-insecure-api-key.{secret['value']}"]
    for _ in range(2):
        async with talking(locked, subprotocols=subprotocols) as client:
            assert client.events[0]["session"]["audio"]["output"]["speed"] == 1.25
            assert (await client.configure(instructions="Other."))["instructions"] == "Other."
            await client.alive()
    async with httpx.AsyncClient(base_url=locked.http, headers={"authorization": f"Bearer {secret['value']}"}) as http:
        for path in ("/metrics", "/v1/models", "/v1/nothing"):
            assert (await http.get(path)).status_code == 401
    assert (await post(locked, {}, secret["value"])).status_code == 401


async def test_the_model_of_its_session_is_the_session_s(locked: Running) -> None:
    secret = (await post(locked, {"session": {"model": "gpt-realtime-2", "colour": "unknown"}})).json()
    assert secret["session"]["model"] == "gpt-realtime-2"
    headers = {"Authorization": f"Bearer {secret['value']}"}
    async with connect(locked.ws, additional_headers=headers) as socket:
        assert (await Client(socket).next())["session"]["model"] == "gpt-realtime-2"


@pytest.mark.fault("S2.2")
async def test_an_expired_or_invented_one_is_refused(locked: Running) -> None:
    secret = (await post(locked, {"expires_after": {"seconds": 10}})).json()
    locked.service.secrets._now = lambda: 1e12
    assert await status_of_socket(locked, secret["value"]) == 401
    assert await status_of_socket(locked, "ek_" + "0" * 64) == 401


async def test_the_memory_of_an_expired_one_is_freed(locked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.FORGET_S", 0.01)
    await post(locked, {})
    assert locked.service.memory.held_of("secrets") > 0
    locked.service.secrets._now = lambda: 1e12
    await eventually(lambda: locked.service.memory.held_of("secrets") == 0)


async def test_withdrawn_ones_leave_no_timers(locked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer for each one would take memory for two hours, however soon it is withdrawn."""
    loop, later = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
    call_later = loop.call_later

    def recorded(delay_s: float, callback: Any, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        handle = call_later(delay_s, callback, *args, **kwargs)
        if "forget" in callback.__name__:
            later.append(handle)
        return handle

    monkeypatch.setattr(loop, "call_later", recorded)
    for _ in range(3):
        await post(locked, {"expires_after": {"seconds": 7200}})
        await post(locked, {}, path=f"{PATH}/withdraw")
    assert len(later) == 1


async def test_a_server_without_keys_refuses_an_expired_one_too(server: Running) -> None:
    value = (await post(server, {})).json()["value"]
    async with talking(server, additional_headers={"Authorization": f"Bearer {value}"}) as client:
        await client.alive()
    assert await status_of_socket(server, value[:-1]) == 401


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"expires_after": {"seconds": 9}}, 400, "expires_after.seconds"),
        ({"expires_after": {"seconds": 7201}}, 400, "expires_after.seconds"),
        ({"expires_after": {"anchor": "never"}}, 400, "expires_after.anchor"),
        ({"session": {"output_modalities": ["audio", "text"]}}, 400, "session.output_modalities"),
        ({"session": {"audio": {"output": {"speed": 9}}}}, 400, "session.audio.output.speed"),
        ({"session": []}, 400, "session"),
        (b"{", 400, None),
        (b'{"session": {"instructions": NaN}}', 400, None),
        (b'{"session": {"instructions": "\\ud800"}}', 400, None),
        (b"[" * 50_000, 400, None),
        (b" " * 70_000, 413, None),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_it_refuses_is_said_in_the_api_s_shape(
    body: Any, status: int, param: str | None, shared: Running
) -> None:
    answer = await post(shared, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert not shared.service.secrets._alive


async def test_there_are_only_so_many(locked: Running) -> None:
    answers = [await post(locked, {}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["error"]["code"] == "too_many_client_secrets"


@pytest.mark.fault("S2.3")
async def test_no_value_reaches_the_log(locked: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "parley")
    value = (await post(locked, {"session": {"instructions": "Be kind."}})).json()["value"]
    assert await status_of_socket(locked, value[:-1]) == 401
    assert "client_secret.issued" in caplog.text
    assert "ek_" not in caplog.text
    assert "kind" not in caplog.text


@pytest.fixture
async def browsed() -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server whose settings list another page's origin."""
    page = script_spec(allowed_origins=["https://page.example/"])
    async with running(page) as server, httpx.AsyncClient(base_url=server.http) as http:
        yield http


ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "x-openai-agents-sdk"}


async def test_pages_of_allowed_origins_may_read_the_answer(browsed: httpx.AsyncClient) -> None:
    origin = {"origin": "https://page.example"}
    preflight = await browsed.options(PATH, headers=origin | ASKS)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://page.example"
    assert "x-openai-agents-sdk" in preflight.headers["access-control-allow-headers"]
    assert "DELETE" in preflight.headers["access-control-allow-methods"]
    answer = await browsed.post(PATH, json={}, headers=origin)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert "Location" in answer.headers["access-control-expose-headers"].split(", ")


async def test_a_page_of_another_origin_may_not_even_send(browsed: httpx.AsyncClient) -> None:
    origin = {"origin": "https://evil.example"}
    assert (await browsed.options(PATH, headers=origin | ASKS)).status_code == 400
    refused = await browsed.post(PATH, json={}, headers=origin)
    assert refused.status_code == 403
    assert "access-control-allow-origin" not in refused.headers
