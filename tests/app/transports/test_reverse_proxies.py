"""A server behind real proxies that cut what is idle, buffer what streams, or drop the upgrade to a WebSocket."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from app import server as server_module
from app.access.tls import Certificate, certificate_of
from app.client import ClientError
from app.client import connect as connected
from app.limits.auth_throttle import AT_ONCE
from app.settings import settings_of
from tests.app.rig import Client, keys_file, running, script_spec
from tests.app.transports.reverse_proxies import UPGRADE, free_port, haproxy, nginx, nginx_of

CUTS_S = 3
"""Seconds of silence after which the proxies here cut a connection; 30 and 60 are customary."""
PING_S = 0.5
STREAM = {"model": "x", "stream": True, "messages": [{"role": "user", "content": "say: one"}]}

Proxy = Callable[[Path, int], AbstractAsyncContextManager[int]]
IMPATIENT: dict[str, Proxy] = {
    "nginx": lambda folder, server: nginx(folder, server, f"{UPGRADE} proxy_read_timeout {CUTS_S}s;"),
    "haproxy": lambda folder, server: haproxy(folder, server, CUTS_S),
}
EACH = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in IMPATIENT]


@asynccontextmanager
async def quiet(name: str, folder: Path) -> AsyncGenerator[Client]:
    """A session through a proxy, of a client that sends no pings of its own."""
    async with (
        running(script_spec()) as server,
        IMPATIENT[name](folder, server.port) as port,
        connect(f"ws://127.0.0.1:{port}/v1/realtime", ping_interval=None) as socket,
    ):
        client = Client(socket)
        await client.until("session.created")
        yield client


def test_pings_are_twice_as_frequent_as_the_proxies_need_that_cut_after_thirty_seconds() -> None:
    assert server_module.PING_S <= 30 / 2


@pytest.mark.parametrize("name", EACH)
@pytest.mark.slow
async def test_a_quiet_session_outlives_a_proxy_that_cuts_idle_sockets(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the same proxy has cut one that is as quiet and gets no pings."""
    monkeypatch.setattr(server_module, "PING_S", PING_S)
    (tmp_path / "pinged").mkdir()
    (tmp_path / "unpinged").mkdir()
    async with quiet(name, tmp_path / "pinged") as client:
        monkeypatch.setattr(server_module, "PING_S", 1000.0)
        async with quiet(name, tmp_path / "unpinged") as other:
            with pytest.raises(ConnectionClosed):
                await other.next()
        await client.alive()


async def first_event(port: int) -> str:
    """The first event of an answer over HTTP."""
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
        http.stream("POST", "/v1/chat/completions", json=STREAM) as answer,
    ):
        return await anext(answer.aiter_lines())


@pytest.fixture
async def endless(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[asyncio.Event]:
    """An answer over HTTP ends when this is set."""
    over = asyncio.Event()

    async def end(body: Any) -> None:
        await over.wait()

    monkeypatch.setattr("app.http.live._Body.end", end)
    yield over
    over.set()


@pytest.mark.nginx
async def test_a_proxy_that_buffers_hands_on_each_event_as_it_comes(tmp_path: Path, endless: asyncio.Event) -> None:
    async with (
        running(script_spec()) as server,
        nginx(tmp_path, server.port, "proxy_set_header Host $http_host;") as port,
    ):
        assert (await first_event(port)).startswith("data: ")
        endless.set()


@pytest.mark.nginx
async def test_a_proxy_that_ignores_what_the_server_says_of_buffering_keeps_them(
    tmp_path: Path, endless: asyncio.Event
) -> None:
    more = "proxy_set_header Host $http_host; proxy_ignore_headers X-Accel-Buffering;"
    async with running(script_spec()) as server, nginx(tmp_path, server.port, more) as port:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await first_event(port)
        endless.set()


PAGE = Path(__file__).parents[3] / "deploy" / "README.md"
NAME = "voice.example.org"


def certificate(folder: Path) -> Certificate:
    made = certificate_of(settings_of({"https": "auto", "allowed_hosts": [NAME]}), folder)
    assert made is not None
    return made


def as_written(folder: Path, port: int, server: int) -> str:
    """What the page on deployment says that nginx needs, with ports and a certificate of this test's."""
    (text,) = re.findall(r"<!-- test: proxy -->\n```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for written, here in {
        "listen 443": f"listen 127.0.0.1:{port}",
        f"/etc/ssl/{NAME}.pem": str(certificate(folder).path),
        f"/etc/ssl/{NAME}.key": str(certificate(folder).key_path),
        "127.0.0.1:8000": f"127.0.0.1:{server}",
    }.items():
        assert text.count(written) == 1
        text = text.replace(written, here)
    return text


@pytest.mark.nginx
async def test_the_nginx_of_the_page_on_deployment_passes_sessions_on_and_no_address_that_a_client_made_up(
    tmp_path: Path,
) -> None:
    port, key = free_port(), "sk-of-this-server-alone"
    spec = script_spec(keys_file=keys_file(tmp_path, key), trusted_proxies=["127.0.0.1"], allowed_hosts=[NAME])
    trusting = ssl.create_default_context(cafile=str(certificate(tmp_path).path))
    async with running(spec) as server, nginx_of(tmp_path, port, as_written(tmp_path, port, server.port)):
        async with connect(
            f"wss://{NAME}/v1/realtime",
            host="127.0.0.1",
            port=port,
            ssl=trusting,
            origin=Origin(f"https://{NAME}"),
            additional_headers={"authorization": f"Bearer {key}"},
        ) as socket:
            await Client(socket).until("session.created")
        async with httpx.AsyncClient(verify=trusting, headers={"authorization": "Bearer wrong", "host": NAME}) as http:
            url, sni = f"https://127.0.0.1:{port}/v1/models", {"sni_hostname": NAME}
            forged = ({"x-forwarded-for": f"10.0.0.{n}"} for n in range(AT_ONCE + 1))
            answers = [await http.get(url, headers=headers, extensions=sni) for headers in forged]
    assert [one.status_code for one in answers] == [401] * AT_ONCE + [429]


@pytest.mark.nginx
async def test_a_proxy_that_drops_the_upgrade_is_named_with_the_headers_that_it_must_pass_on(tmp_path: Path) -> None:
    async with running(script_spec()) as server, nginx(tmp_path, server.port, "") as port:
        with pytest.raises(ClientError, match=r"A proxy in front of the server must .* Upgrade and Connection"):
            async with connected(f"http://127.0.0.1:{port}"):
                pass


@pytest.mark.nginx
async def test_a_proxy_that_replaces_the_host_is_named_where_a_page_asks(tmp_path: Path) -> None:
    """The page's own files come all the same: it could not say what is wrong without its script."""
    async with running(script_spec()) as server, nginx(tmp_path, server.port, "") as port:
        origin = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=origin, headers={"origin": origin}) as http:
            assert (await http.get("/voice.js")).status_code == 200
            refused = await http.get("/v1/models")
    assert refused.status_code == 403
    assert "must forward the Host header" in refused.json()["error"]["message"]
