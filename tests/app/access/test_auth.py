"""Hosts, origins and keys: what is refused before any route runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.api_keys import ApiKey, ApiKeys
from app.access.auth import OPEN_PATHS, Gate, owner_of
from app.access.client_secrets import ClientSecrets
from app.limits.auth_throttle import AT_ONCE, EVERY_S, AuthThrottle
from app.limits.bandwidth import BandwidthLimits
from app.limits.principal import Principal
from app.limits.quotas import Quotas
from app.settings import Limits, settings_of
from engine import ConfigError
from tests.app.rig import Running, keys_file, running, script_spec, talking


async def status(server: Running, path: str = "/health", **headers: str) -> int:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return (
            await http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        ).status_code


async def refusal(server: Running, name: str = "127.0.0.1", **options: Any) -> tuple[int, str]:
    """What a WebSocket's handshake gets; ``name`` is what its client takes the server for."""
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://{name}:{server.port}/v1/realtime", host="127.0.0.1", port=server.port, **options)
    response = refused.value.response
    return response.status_code, json.loads(response.body)["error"]["code"]


@pytest.mark.fault("S1.2")
async def test_a_foreign_host_is_refused(server: Running) -> None:
    """DNS rebinding: the browser thinks that it talks to the attacker's own name."""
    assert await status(server, host="evil.example") == 403
    assert await status(server, host="evil.example:8000") == 403
    assert await status(server, host="") == 403
    assert await status(server, host=f"localhost:{server.port}") == 200
    assert await status(server, host="192.168.1.7:8000") == 200
    assert await status(server, host="[::1]:8000") == 200
    assert await refusal(server, "evil.example") == (403, "host_not_allowed")


async def test_a_malformed_host_is_refused_whatever_it_begins_with(server: Running) -> None:
    """F20. A port may be empty (RFC 3986)."""
    for host in ("localhost:", "[::1]", "LOCALHOST:80", "[::ffff:127.0.0.1]:1"):
        assert await status(server, host=host) == 200, host
    for host in ("[::1]evil.example", "127.0.0.1:x@evil.example", "localhost:80@evil.example", "[::1]:8000:9"):
        assert await status(server, host=host) == 403, host
    for host in ("[localhost]", "[::1", "::1", "localhost/evil", "localhost?", "localhost evil", "127.0.0.1:999999"):
        assert await status(server, host=host) == 403, host


async def test_an_origin_is_that_of_a_web_page(server: Running) -> None:
    own = f"127.0.0.1:{server.port}"
    assert await status(server, origin=f"http://{own}") == 200
    assert await status(server, origin=f"https://{own}") == 200  # a proxy in front may speak TLS
    for other in (f"ftp://{own}", own, f"http://{own}@evil.example", f"http://{own}/evil", "http://", ""):
        assert await status(server, origin=other) == 403, other


@pytest.mark.fault("S1.1")
async def test_a_foreign_origin_is_refused_before_the_upgrade(server: Running) -> None:
    assert await refusal(server, origin="https://evil.example") == (403, "origin_not_allowed")
    assert await refusal(server, origin="null") == (403, "origin_not_allowed")
    assert await refusal(server, origin=f"http://127.0.0.1:{server.port + 1}") == (403, "origin_not_allowed")
    assert server.metric("parley_sessions") == 0
    async with talking(server, origin=server.http) as client:
        await client.alive()


async def test_names_and_origins_that_the_settings_list_pass() -> None:
    spec = script_spec(allowed_hosts=["voice.example"], allowed_origins=["https://page.example"])
    async with running(spec) as server:
        assert await status(server, host="voice.example") == 200
        assert await status(server, origin="https://page.example") == 200
        assert await status(server, origin="https://page.example.evil.example") == 403


@pytest.mark.parametrize(
    ("allowed", "origin", "differs"),
    [
        ("http://127.0.0.1:5173", "http://localhost:5173", True),
        ("http://localhost:5173", "http://[::1]:5173", True),
        ("http://localhost", "http://127.0.0.1", True),
        ("http://localhost:5173", "http://127.0.0.1:5174", False),
        ("http://localhost:5173", "https://127.0.0.1:5173", False),
        ("http://localhost:5173", "http://localhost.evil.example:5173", False),
        ("https://page.example", "http://127.0.0.1:5173", False),
    ],
)
async def test_a_refused_origin_is_named_with_the_reason(
    allowed: str, origin: str, differs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the exact origin passes: a port of this machine may belong to others at ::1 than at 127.0.0.1."""
    caplog.set_level("INFO", "parley")
    async with running(script_spec(allowed_origins=[allowed])) as server:
        async with httpx.AsyncClient(base_url=server.http) as http:
            answer = await http.get("/v1/models", headers={"origin": origin})
        assert answer.status_code == 403
        message = answer.json()["error"]["message"]
        assert message.startswith(f"Pages of {origin} may not connect: add this origin to server.allowed_origins. ")
        assert ("Browsers treat localhost, 127.0.0.1 and [::1] as different origins." in message) == differs
        assert f"code=origin_not_allowed origin={origin}" in caplog.text


@pytest.mark.fault("S2.1")
async def test_keys_are_asked_for_everywhere_but_at_the_probes(tmp_path: Path) -> None:
    keys = keys_file(tmp_path, "# ours", "sk-one-0123456789", "", "sk-two-0123456789")
    async with running(script_spec(keys_file=keys)) as server:
        assert await status(server) == 200
        assert await status(server, "/livez") == 200
        assert await status(server, "/docs") == 200
        for path in ("/metrics", "/v1/nothing"):
            assert await status(server, path) == 401
            assert await status(server, path, authorization="Bearer sk-three-0123456") == 401
        assert await status(server, "/metrics", authorization="Bearer sk-two-0123456789") == 200
        assert await status(server, "/metrics", authorization="bearer sk-one-0123456789") == 200
        assert await status(server, "/metrics", api_key="sk-two-0123456789") == 200
        assert await status(server, "/metrics", api_key="sk-three-0123456") == 401
        assert (
            await status(server, "/metrics", api_key="sk-three-0123456", authorization="Bearer sk-one-0123456789")
            == 200
        )
        async with talking(server, additional_headers={"api-key": "sk-one-0123456789"}) as azure:
            await azure.alive()
        assert await refusal(server, additional_headers={"api-key": "sk-on"}) == (401, "invalid_api_key")
        assert await refusal(server) == (401, "invalid_api_key")
        assert await refusal(server, additional_headers={"Authorization": "Bearer sk-on"}) == (401, "invalid_api_key")
        async with talking(server, additional_headers={"Authorization": "Bearer sk-one-0123456789"}) as client:
            await client.alive()
        browser = ["realtime", "openai-insecure-api-key.sk-two-0123456789"]
        async with talking(server, subprotocols=browser) as client:
            assert client.socket.subprotocol == "realtime"


@pytest.mark.fault("S2.4")
async def test_who_tries_many_wrong_keys_has_to_wait(tmp_path: Path) -> None:
    """Then the right one is refused as well, or guessing would go on; who sends no key is not guessing."""
    files = {
        "keys_file": keys_file(tmp_path, "sk-one-0123456789"),
        "admin_key_file": keys_file(tmp_path, "sk-admin-0123456789", name="admin"),
    }
    right = {"authorization": "Bearer sk-one-0123456789"}
    async with running(script_spec(**files)) as server:
        now_s = server.service.throttle.now()
        server.service.throttle.now = lambda: now_s
        tries = ["/metrics", "/v1/models", "/admin/workers", "/admin/workers"] * (AT_ONCE // 4)
        assert [await status(server, path, authorization="Bearer sk-two-0123456789") for path in tries] == [
            401
        ] * AT_ONCE
        assert await status(server, "/metrics", **right) == 429
        assert await status(server, "/admin/workers", authorization="Bearer sk-admin-0123456789") == 429
        assert await refusal(server, subprotocols=["openai-insecure-api-key.sk-one-0123456789"]) == (
            429,
            "too_many_wrong_keys",
        )
        assert await status(server) == 200
        assert await status(server, "/metrics") == 401
        server.service.throttle.now = lambda: now_s + EVERY_S
        assert await status(server, "/metrics", **right) == 200


async def test_no_key_at_all_is_no_wrong_one(tmp_path: Path) -> None:
    async with running(script_spec(keys_file=keys_file(tmp_path, "sk-one-0123456789"))) as server:
        for _ in range(AT_ONCE + 1):
            assert await status(server, "/metrics") == 401
        assert await status(server, "/metrics", authorization="Bearer sk-one-0123456789") == 200


def routes(server: Running) -> list[tuple[str, str]]:
    """Every method and path of the API, with something in the place of a path's names."""
    app: Any = server.server.config.app
    paths = app.openapi()["paths"].items()
    return [(method.upper(), re.sub(r"{.*?}", "x", path)) for path, methods in paths for method in methods]


@pytest.mark.fault("S1.1", "S1.2", "S2.1")
async def test_no_route_is_left_out_of_the_checks(tmp_path: Path) -> None:
    """Deny by default: a foreign name, a foreign page and a missing key are refused before any route runs."""
    keys = keys_file(tmp_path, "sk-one-0123456789")
    async with running(script_spec(keys_file=keys)) as server, httpx.AsyncClient(base_url=server.http) as http:
        known = routes(server)
        assert {("POST", "/v1/realtime/calls"), ("POST", "/v1/chat/completions"), ("GET", "/metrics")} <= set(known)
        key = {"authorization": "Bearer sk-one-0123456789"}
        for method, path in known:
            for foreign in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                assert (await http.request(method, path, headers={**key, **foreign})).status_code == 403, path
            if path not in OPEN_PATHS:
                no_key = 403 if path.startswith("/admin/") else 401  # what no key opens without server.admin_key_file
                assert (await http.request(method, path)).status_code == no_key, path


async def scope_behind(gate: Gate, key: str | None, path: str = "/v1/realtime/calls") -> dict[str, Any] | None:
    """What a route sees of a request, or None if it does not see it."""
    headers = [(b"host", b"localhost")] + ([] if key is None else [(b"authorization", f"Bearer {key}".encode())])
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("::1", 1)}
    passed: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the gate reads no body")

    async def send(message: Any) -> None:
        pass

    async def route(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    gate._app = route
    await gate(scope, receive, send)
    return passed[0] if passed else None


def gate_of(*keys: ApiKey) -> tuple[Gate, ClientSecrets]:
    secrets = ClientSecrets(8)
    settings, passing = settings_of({}), Quotas(Limits(), lambda: False)
    app: Any = None
    return Gate(
        app,
        settings,
        ApiKeys(keys),
        ApiKeys(),
        secrets,
        AuthThrottle(),
        passing,
        BandwidthLimits(Limits()),
        frozenset(),
    ), secrets


async def test_a_route_is_told_whose_key_a_request_came_with() -> None:
    gate, secrets = gate_of(ApiKey("alice", "sk-alice"), ApiKey("bob", "sk-bob"))
    alices = secrets.issue({}, maker=Principal("alice"))
    for key, owner in (("sk-alice", "alice"), ("sk-bob", "bob"), (alices.value, "alice")):
        assert owner_of(await scope_behind(gate, key) or {}) == owner
    assert await scope_behind(gate, "sk-alic") is None
    assert await scope_behind(gate, None) is None


async def test_without_keys_nobody_has_a_name() -> None:
    gate, secrets = gate_of()
    for key in (None, "any", secrets.issue({}).value):
        assert owner_of(await scope_behind(gate, key) or {"missing": True}) == ""


def test_a_key_reaches_what_its_secrets_made_and_a_secret_only_its_own() -> None:
    secrets = ClientSecrets(8)
    key, stranger = Principal("a"), Principal("b")
    one, two, others = (secrets.issue({}, maker=maker) for maker in (key, key, stranger))
    page, another, stranger = Principal("a", one), Principal("a", two), Principal("b", others)
    assert [key.reaches(made) for made in (key, page, another, stranger)] == [True, True, True, False]
    assert [page.reaches(made) for made in (key, page, another, stranger)] == [False, True, False, False]
    assert Principal().reaches(Principal())


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"hots": "x"}, r"server\.hots: unknown key \(did you mean 'host'\?\)"),
        ({"port": "80"}, r"server\.port: must be int"),
        ({"port": 70_000}, r"server\.port: must be from 0 to 65535"),
        ({"limits": {"sessions": 0}}, r"server\.limits\.sessions: must be a positive, finite number"),
        ({"turns": {"echo_guard": 1}}, r"server\.turns\.echo_guard: must be bool"),
        ({"limits": 5}, r"server\.limits: must be a mapping"),
    ],
)
def test_settings_are_read_strictly(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(section)


@pytest.mark.fault("S4.1")
def test_the_defaults_are_loopback_without_keys() -> None:
    settings = settings_of({})
    assert (settings.host, settings.port, settings.keys_file) == ("127.0.0.1", 8000, None)
