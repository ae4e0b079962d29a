"""Who may ask what: every route of the server by every kind of key, as it is written here.

A route without a row fails the test. What is whose among those who have a key: test_shares.py, http/test_calls.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import Mount, Route
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.app.rig import Running, keys_file, running, script_spec

Door = Literal["open", "key", "session", "metrics", "admin"]
Asker = Literal["nobody", "wrong", "alice", "bob", "secret", "scraper", "admin"]

LETS_IN: dict[Door, set[Asker]] = {
    "open": {"nobody", "wrong", "alice", "bob", "secret", "scraper", "admin"},
    "key": {"alice", "bob"},
    "session": {"alice", "bob", "secret"},
    "metrics": {"scraper"},
    "admin": {"admin"},
}

# Who may use each route: "open" everybody, "key" each API key, "session" also a client's secret, "metrics" and "admin"
# the keys of those files.
ROWS: dict[tuple[str, str], Door] = {
    ("GET", "/"): "open",
    ("GET", "/livez"): "open",
    ("GET", "/health"): "open",
    ("GET", "/docs"): "open",
    ("GET", "/docs/files"): "open",
    ("GET", "/openapi.json"): "open",
    ("GET", "/metrics"): "metrics",
    ("GET", "/phone"): "key",
    ("GET", "/v1/models"): "key",
    ("GET", "/v1/models/{id}"): "key",
    ("GET", "/v1/audio/voices"): "key",
    ("GET", "/v1/audio/models"): "key",
    ("POST", "/v1/chat/completions"): "key",
    ("POST", "/v1/responses"): "key",
    ("GET", "/v1/responses/{id}"): "key",
    ("DELETE", "/v1/responses/{id}"): "key",
    ("POST", "/v1/audio/speech"): "key",
    ("POST", "/v1/audio/transcriptions"): "key",
    ("POST", "/v1/speakers"): "key",
    ("POST", "/v1/realtime/client_secrets"): "key",
    ("POST", "/v1/realtime/client_secrets/withdraw"): "key",
    ("POST", "/v1/realtime/calls/{call_id}/hangup"): "key",
    ("POST", "/v1/realtime/calls"): "session",
    ("GET", "/v1/realtime/ice-servers"): "session",
    ("WEBSOCKET", "/v1/realtime"): "session",
    ("GET", "/v1/realtime"): "key",  # says that a proxy left the upgrade out
    ("WEBSOCKET", "/v1/live/sessions"): "key",
    ("WEBSOCKET", "/v1/live/sessions/{session_id}/attach"): "key",
    ("GET", "/v1/live/sessions"): "key",  # the same
    ("POST", "/v1/live/sessions"): "key",
    ("POST", "/v1/live/sessions/{session_id}/hangup"): "key",
    ("POST", "/v1/live/sessions/{session_id}/{what}"): "key",
    ("GET", "/v1/live/sessions/{session_id}/{what}"): "key",
    ("GET", "/admin/workers"): "admin",
    ("POST", "/admin/scale"): "admin",
    ("POST", "/admin/restart"): "admin",
}

KEYS: dict[Asker, str] = {
    "wrong": "sk-of-nobody-012345",
    "alice": "sk-alice-0123456789",
    "bob": "sk-bob-0123456789ab",
    "scraper": "sk-scraper-012345678",
    "admin": "sk-admin-0123456789",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def locked(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[Running, dict[Asker, str]]]:
    """A server with keys of every kind, and those keys, a client secret of alice's among them."""
    folder: Path = tmp_path_factory.mktemp("keys")
    files = {
        "keys_file": keys_file(folder, f"alice: {KEYS['alice']}", f"bob: {KEYS['bob']}"),
        "metrics_key_file": keys_file(folder, KEYS["scraper"], name="metrics"),
        "admin_key_file": keys_file(folder, KEYS["admin"], name="admin"),
    }
    async with running(script_spec(**files)) as server, httpx.AsyncClient(base_url=server.http) as http:
        server.service.throttle.failed = lambda address: None  # many wrong keys are what this is about
        headers = {"authorization": f"Bearer {KEYS['alice']}"}
        secret = (await http.post("/v1/realtime/client_secrets", json={}, headers=headers)).json()["value"]
        yield server, {**KEYS, "secret": secret}


def routes(server: Running) -> set[tuple[str, str]]:
    """Every method and path that the server answers at."""
    app: Any = server.server.config.app
    return found_in(app.routes)


def found_in(routes: list[Any]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for route in routes:
        match route:
            case APIWebSocketRoute():
                found.add(("WEBSOCKET", route.path))
            case Mount():
                found.add(("GET", route.path or "/"))
            case APIRoute() | Route():
                found |= {(method, route.path) for method in (route.methods or ()) if method != "HEAD"}
            case _ if hasattr(route, "original_router"):  # newer FastAPI keeps what is included as it was
                found |= found_in(route.original_router.routes)
            case _:
                raise AssertionError(f"a route of an unknown kind: {route}")
    return found


async def asked(server: Running, method: str, path: str, key: str | None) -> int:
    """The status that a request gets; it asks for nothing that could be done."""
    headers = {"authorization": f"Bearer {key}"} if key is not None else {}
    path = path.replace("{call_id}", "rtc_none").replace("{id}", "none")
    path = path.replace("{session_id}", "live_none").replace("{what}", "fork")
    if method == "WEBSOCKET":
        try:
            async with connect(f"ws://127.0.0.1:{server.port}{path}", additional_headers=headers):
                return 101
        except InvalidStatus as refused:
            return refused.response.status_code
    content = None if method == "GET" else b"no JSON"
    async with httpx.AsyncClient(base_url=server.http, headers=headers, timeout=30) as http:
        return (await http.request(method, path, content=content)).status_code


@pytest.mark.asyncio(loop_scope="module")
async def test_every_route_has_a_row(locked: tuple[Running, dict[Asker, str]]) -> None:
    assert routes(locked[0]) == set(ROWS)


@pytest.mark.fault("S2.1", "S2.2", "S2.5")
@pytest.mark.parametrize(("method", "path"), list(ROWS))
@pytest.mark.asyncio(loop_scope="module")
async def test_a_route_lets_in_who_is_written_here_and_nobody_else(
    method: str, path: str, locked: tuple[Running, dict[Asker, str]]
) -> None:
    server, keys = locked
    askers: tuple[Asker, ...] = ("nobody", *keys)
    told = {asker: await asked(server, method, path, keys.get(asker)) for asker in askers}
    assert {asker for asker, status in told.items() if status not in (401, 403)} == LETS_IN[ROWS[method, path]], told
    assert all(status < 500 for status in told.values()), told


async def test_a_request_that_no_route_serves_is_told_so(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post("/v1/audio/translations", json={})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("No POST request is served at this path")
