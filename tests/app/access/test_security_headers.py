"""What every answer's head says, whatever it answers; and what the log has of who asked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import aioice.ice
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.security_headers import SAFE, SecurityHeadersMiddleware
from app.settings import settings_of
from engine import ConfigError
from tests.app.rig import Running, eventually, keys_file, running, script_spec, talking
from tests.app.transports.webrtc.caller import Caller

ALICE, BOB = {"authorization": "Bearer sk-alice-0123456789"}, {"authorization": "Bearer sk-bob-0123456789ab"}
ID = re.compile(r"req_\w{20,}")


async def test_pages_of_other_origins_may_load_the_library_and_nothing_else(server: Running) -> None:
    """Without this a browser blocks the library itself, which then cannot say that the origin is not allowed."""
    elsewhere = {"origin": "https://shop.example"}
    async with httpx.AsyncClient(base_url=server.http, headers=elsewhere) as http:
        allowed = "access-control-allow-origin"
        for path in ("/voice.js", "/call.js"):
            assert (await http.get(path)).headers[allowed] == "*"
        for path in ("/", "/v1/models", "/health"):
            assert allowed not in (await http.get(path)).headers


async def test_every_answer_says_what_a_browser_may_do_with_it(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        answers = [await http.get(path) for path in ("/", "/livez", "/metrics", "/v1/nothing", "/voice.js")]
        answers.append(await http.get("/livez", headers={"host": "evil.example"}))
        answers.append(await http.post("/v1/chat/completions", json=[]))
        for answer in answers:
            assert {name: answer.headers[name] for name in SAFE} == SAFE
            assert ID.fullmatch(answer.headers["x-request-id"])
            assert "strict-transport-security" not in answer.headers
        assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
        assert "frame-ancestors 'none'" in answers[0].headers["content-security-policy"]
        docs = await http.get("/docs")
    assert "'unsafe-inline'" in docs.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in docs.headers["content-security-policy"]


async def test_an_error_holds_the_id_that_its_head_has(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "parley")
    async with httpx.AsyncClient(base_url=server.http) as http:
        refused = await http.get("/livez", headers={"host": "evil.example"})
        for answer in (refused, await http.get("/v1/nothing"), await http.post("/v1/audio/speech", json={})):
            assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert f"request={refused.headers['x-request-id']}" in caplog.text
    with pytest.raises(InvalidStatus) as denied:
        await connect(server.ws + "?call_id=rtc_none")
    response = denied.value.response
    assert json.loads(response.body)["request_id"] == response.headers["x-request-id"]
    async with talking(server) as client:
        assert client.socket.response is not None
        assert ID.fullmatch(client.socket.response.headers["x-request-id"])


@pytest.mark.parametrize(
    ("https", "scheme", "told"),
    [(None, "https", True), ("cert.pem", "wss", True), ("auto", "https", False), (None, "http", False)],
)
async def test_a_host_with_a_certificate_of_its_own_is_https_from_then_on(
    https: str | None, scheme: str, told: bool
) -> None:
    """A proxy may be the one that has it."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "scheme": scheme}
    await SecurityHeadersMiddleware(app, settings_of({"https": https} if https else {}))(scope, None, send)  # pyright: ignore[reportArgumentType]
    assert (b"strict-transport-security" in dict(sent[0]["headers"])) is told


@pytest.mark.fault("S2.3")
async def test_the_log_says_who_did_what_by_the_key_s_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "parley")
    keys = keys_file(tmp_path, "alice: sk-alice-0123456789", "bob: sk-bob-0123456789ab")
    admin = keys_file(tmp_path, "root: sk-root-0123456789", name="admin")
    async with (
        running(script_spec(keys_file=keys, admin_key_file=admin)) as server,
        httpx.AsyncClient(base_url=server.http) as http,
    ):
        async with talking(server, additional_headers=ALICE) as client:
            await client.ask("say: swordfish")
        await server.empty()
        body = {"model": "x", "messages": [{"role": "user", "content": "say: marzipan"}]}
        assert (await http.post("/v1/chat/completions", json=body, headers=BOB)).status_code == 200
        await http.post("/v1/realtime/client_secrets", json={}, headers=BOB)
        await http.post("/v1/realtime/client_secrets/withdraw", json={}, headers=BOB)
        wish = {"stage": "talker", "count": 1}
        await http.post("/admin/scale", json=wish, headers={"authorization": "Bearer sk-root-0123456789"})
        await http.get("/v1/models", headers={"authorization": "Bearer wrong"})
        await eventually(lambda: "request.refused" in caplog.text)
    lines = [record.getMessage() for record in caplog.records if record.name == "parley"]
    for event, key, more in (
        ("session.opened", "alice", "client=127.0.0.1"),
        ("response.done", "alice", "audio_s="),
        ("session.closed", "alice", "lasted_s="),
        ("http.answered", "bob", "audio_s="),
        ("client_secret.issued", "bob", "lifetime_s="),
        ("client_secret.withdrawn", "bob", "count=1"),
        ("admin.change", "root", "talker"),
        ("admin.changed", "root", "talker"),
        ("request.refused", "-", "client=127.0.0.1 path=/v1/models status=401"),
    ):
        (line,) = [line for line in lines if line.startswith(f"{event} ")]
        assert f"key={key} request=req_" in line
        assert more in line
    assert not [word for word in ("swordfish", "marzipan", "sk-", "wrong") if word in " ".join(lines)]


@pytest.mark.fault("S2.3")
async def test_the_log_says_who_called_and_who_listened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])
    caplog.set_level("INFO", "parley")
    keys = keys_file(tmp_path, "alice: sk-alice-0123456789", "bob: sk-bob-0123456789ab")
    async with running(script_spec(keys_file=keys)) as server:
        call = await Caller(server).connect(authorization=ALICE["authorization"])
        async with connect(f"{server.ws}?call_id={call.id}", additional_headers=ALICE) as sideband:
            await sideband.recv()
        await eventually(lambda: "sideband.closed" in caplog.text)
        await call.hang_up()
        await server.empty()
    lines = [record.getMessage() for record in caplog.records if record.name == "parley"]
    for event, more in (
        ("call.opened", "client=127.0.0.1"),
        ("sideband.opened", ""),
        ("sideband.closed", "code=1000"),
        ("call.closed", "lasted_s="),
    ):
        (line,) = [line for line in lines if line.startswith(f"{event} ")]
        assert "key=alice request=req_" in line
        assert f"call={call.id}" in line
        assert more in line


@pytest.mark.fault("S2.1")
async def test_metrics_have_a_key_of_their_own_or_are_open(tmp_path: Path) -> None:
    """F30: any user's key read them, and they name the keys of the others."""
    keys = keys_file(tmp_path, "sk-alice-0123456789")
    scraper = {"authorization": "Bearer sk-scraper-0123456"}
    own = {"metrics_key_file": keys_file(tmp_path, "sk-scraper-0123456", name="metrics")}
    for section, answers in (({}, [401, 200, 401]), (own, [401, 401, 200]), ({"metrics": "open"}, [200, 200, 200])):
        async with (
            running(script_spec(keys_file=keys, **section)) as server,
            httpx.AsyncClient(base_url=server.http) as http,
        ):
            asked = [await http.get("/metrics", headers=headers) for headers in ({}, ALICE, scraper)]
            assert [one.status_code for one in asked] == answers
            assert (await http.get("/v1/models", headers=scraper)).status_code == 401
    with pytest.raises(ConfigError, match=r"server\.metrics_key_file: has no effect"):
        settings_of({"metrics": "open", **own})
