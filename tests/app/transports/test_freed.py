"""A connection that is over is freed at once: the collector would stop everybody for the garbage of a thousand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from app.transports.http_protocol import HttpProtocol
from app.transports.intake import Intake
from app.transports.socket_protocol import SocketProtocol
from tests.app.rig import eventually, keys_file, running, script_spec
from tests.app.transports.malformed import HEAD, UPGRADE
from tests.attacks.raw import TEXT, frame, upgraded

GET = b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n"
POST = b"POST /v1/audio/speech HTTP/1.1\r\n" + HEAD + b"Content-Length: 1000\r\n\r\n{"
SAID = {
    "nothing": b"",
    "half a request": GET[:30],
    "a request": GET,
    "many requests": GET * 20,
    "half a second request": GET + b"G",
    "a body that never comes": POST,
    "no request": b"\x00\r\n\r\n",
    "a handshake that is refused": UPGRADE,
}


Left = WeakSet[HttpProtocol | SocketProtocol]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Left]:
    """The connections that are in memory; the collector does not run."""
    found: Left = WeakSet()
    for kind in (HttpProtocol, SocketProtocol):
        monkeypatch.setattr(kind, "__init__", _noted(kind.__init__, found))
    gc.disable()
    yield found
    gc.enable()


def _noted(init: Any, found: Left) -> Any:
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        found.add(self)

    return noted


async def come_and_go(port: int, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await reader.read(100)
    writer.transport.abort()


@pytest.mark.parametrize("said", SAID)
async def test_nothing_is_left_for_the_collector(said: str, tmp_path: Path, left: Left) -> None:
    async with running(script_spec(keys_file=keys_file(tmp_path, "k" * 20))) as server:
        for _ in range(5):
            await come_and_go(server.port, SAID[said])
        await eventually(lambda: not left)


async def test_where_whom_it_called_is_kept_it_is_left(
    tmp_path: Path, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""

    def close(self: Intake) -> None:
        self._closed, self._unread = True, memoryview(b"")

    monkeypatch.setattr(Intake, "close", close)
    async with running(script_spec(keys_file=keys_file(tmp_path, "k" * 20))) as server:
        for _ in range(5):
            await come_and_go(server.port, GET)
        await eventually(lambda: not server.server.connections)
        assert len(left) == 5


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(frame(TEXT, b"a" * 100_000)[:60_000], id="half a frame"),
        pytest.param(frame(TEXT, b"a" * 60_000, whole=False), id="half a message"),
    ],
)
async def test_of_a_message_without_an_end_nothing_is_held_once_its_client_is_gone(said: bytes, left: Left) -> None:
    """A session's socket lives until the collector comes: thirty had held 450 MB for as long."""

    def held() -> list[int]:
        sockets = [one for one in left if isinstance(one, SocketProtocol)]
        return [len(one.conn.reader.buffer) + sum(map(len, one.frames)) for one in sockets]

    async with running(script_spec()) as server:
        _, writer = await upgraded(server.port)
        writer.write(said)
        await eventually(lambda: sum(held()) > 59_000)
        writer.transport.abort()
        await eventually(lambda: server.metric("parley_sessions") == 0)
        assert sum(held()) == 0
