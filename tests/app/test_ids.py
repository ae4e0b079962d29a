"""Ids that name their server: what a proxy reads in them, and what a server says of one that is another's."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.client_secrets import ClientSecrets
from app.ids import elsewhere, new_id
from app.settings import settings_of
from engine import ConfigError
from tests.app.rig import Running, running, script_spec, talking

GONE = "The server 'a' made it, and this one is 'b'"


def test_an_id_has_128_random_bits_and_the_server_whose_it_is() -> None:
    assert re.fullmatch("resp_[0-9a-f]{32}", new_id("resp"))
    assert re.fullmatch("resp_eu-1_[0-9a-f]{32}", new_id("resp", "eu-1"))
    assert re.fullmatch("ek_eu-1_[0-9a-f]{64}", ClientSecrets(1, server="eu-1").issue({}).value)
    assert len({new_id("resp", "a") for _ in range(100)}) == 100


def test_only_an_id_of_another_server_is_elsewhere() -> None:
    assert GONE in elsewhere(new_id("rtc", "a"), "b")
    assert "this one is one without a name" in elsewhere(new_id("rtc", "a"), None)
    for id in (new_id("rtc", "b"), new_id("rtc"), "", "rtc_", "rtc_a_x", "rtc_a_b_0", "RTC_a_00", "rtc_\udcff_00"):
        assert elsewhere(id, "b") == ""


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a.b", "a" * 17, "ä", "a\n"])
def test_names_that_no_server_may_have(name: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.name: must be"):
        settings_of({"name": name})
    assert settings_of({"name": "eu-1"}).name == "eu-1"


@pytest.fixture
async def b() -> Any:
    async with running(script_spec(name="b")) as server:
        yield server


async def test_what_another_server_made_ends_with_one_error_that_says_so(b: Running) -> None:
    rtc, live, resp = (new_id(kind, "a") for kind in ("rtc", "live", "resp"))
    goes_on = {"model": "script", "input": "hello", "previous_response_id": resp}
    refused: list[tuple[str, str, Any, int, str]] = [
        ("POST", f"/v1/realtime/calls/{rtc}/hangup", None, 404, "call_not_found"),
        ("POST", f"/v1/live/sessions/{live}/hangup", None, 404, "session_not_found"),
        ("GET", f"/v1/responses/{resp}", None, 404, "response_not_found"),
        ("DELETE", f"/v1/responses/{resp}", None, 404, "response_not_found"),
        ("POST", "/v1/responses", goes_on, 400, "previous_response_not_found"),
    ]
    async with httpx.AsyncClient(base_url=b.http) as http:
        for method, path, body, status, code in refused:
            answer = await http.request(method, path, json=body)
            assert answer.status_code == status, path
            error = answer.json()["error"]
            assert error["code"] == code
            assert GONE in error["message"]


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/v1/realtime?resume=resume_a_5b1f&after=0", {}, 404, "resume_not_found"),
        ("/v1/realtime?call_id=rtc_a_5b1f", {}, 404, "call_not_found"),
        ("/v1/live/sessions/live_a_5b1f/attach", {}, 404, "call_not_found"),
        ("/v1/realtime", {"authorization": "Bearer ek_a_5b1f"}, 401, "invalid_api_key"),
    ],
)
async def test_so_do_sockets(b: Running, path: str, headers: dict[str, str], status: int, code: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{b.port}{path}", additional_headers=headers)
    body = (refused.value.response.body or b"").decode()
    assert refused.value.response.status_code == status
    assert f'"{code}"' in body
    assert GONE in body


async def test_the_server_names_itself_in_what_clients_bring_back(b: Running) -> None:
    async with talking(b) as client, httpx.AsyncClient(base_url=b.http) as http:
        session = await client.configure(parley={"resume": True})
        answer = await http.post("/v1/responses", json={"model": "script", "input": "say: one"})
        secret = await http.post("/v1/realtime/client_secrets", json={})
    assert session["parley"]["resume_token"].startswith("resume_b_")
    assert answer.json()["id"].startswith("resp_b_")
    assert secret.json()["value"].startswith("ek_b_")
