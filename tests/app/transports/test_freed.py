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
