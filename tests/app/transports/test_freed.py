"""A connection that is over is freed at once: the collector would stop everybody for the garbage of a thousand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest

from app.realtime.output.response_task import ResponseTask
from app.realtime.output.responses import Responses
from app.realtime.session import Session
from app.transports.channel import Channel
from app.transports.http_protocol import HttpProtocol
from app.transports.intake import Intake
from app.transports.resumable_session import ResumableSession
from app.transports.socket_protocol import SocketProtocol
from engine.aio.task_group import CycleFreeTaskGroup
from tests.app.rig import Client, eventually, keys_file, running, script_spec, silence, talking
from tests.app.scripted import duplex_spec
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
        async with asyncio.timeout(0.02):
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
    """Thirty had held 450 MB until the collector came."""

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


async def nothing(client: Client) -> None:
    """It is greeted."""


async def a_typed_turn(client: Client) -> None:
    await client.ask("say: Hello there, how are you?")


async def a_spoken_turn(client: Client) -> None:
    await client.configure(audio={"input": {"turn_detection": None}})
    await client.append(silence(0.5))
    await client.send("input_audio_buffer.commit")
    await client.send("response.create")
    await client.until("response.done")


async def half_an_answer(client: Client) -> None:
    await (await client.say("say: " + "one two three four five " * 40)).send("response.create")
    await client.until("response.output_audio.delta")


async def a_cut(client: Client) -> None:
    await half_an_answer(client)
    client.socket.transport.abort()


PARTS = (Session, Responses, ResumableSession, Channel, SocketProtocol, ResponseTask)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[WeakSet[Any]]:
    """What of sessions is in memory; the collector does not run."""
    found: WeakSet[Any] = WeakSet()
    for kind in PARTS:
        monkeypatch.setattr(kind, "__init__", _noted(kind.__init__, found))
    gc.disable()
    yield found
    gc.enable()


@pytest.mark.parametrize("said", [nothing, a_typed_turn, a_spoken_turn, half_an_answer, a_cut])
async def test_a_session_that_is_over_is_freed_at_once(
    said: Callable[[Client], Awaitable[None]], parts: WeakSet[Any]
) -> None:
    async with running(script_spec()) as server:
        for _ in range(2):
            async with talking(server) as client:
                await said(client)
                assert len(parts) >= len(PARTS) - 1
            await server.empty()
            await eventually(lambda: not parts)


async def words_of_a_duplex_model(client: Client) -> None:
    await client.configure(instructions="say: one two three four five six")
    await client.append(silence(0.02))
    await client.until("response.output_audio.delta")


async def a_duplex_model_that_starts_anew(client: Client) -> None:
    await words_of_a_duplex_model(client)
    await client.configure(instructions="say: one")
    await client.until("response.output_audio.delta")


@pytest.mark.parametrize("said", [nothing, words_of_a_duplex_model, a_duplex_model_that_starts_anew])
async def test_a_duplex_session_that_is_over_is_freed_at_once(
    said: Callable[[Client], Awaitable[None]], parts: WeakSet[Any]
) -> None:
    async with running(duplex_spec()) as server:
        for _ in range(2):
            async with talking(server) as client:
                await said(client)
                assert parts
            await server.empty()
            await eventually(lambda: not parts)


async def test_where_a_group_holds_its_error_a_session_is_left(
    parts: WeakSet[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(CycleFreeTaskGroup, "__aexit__", asyncio.TaskGroup.__aexit__)
    async with running(script_spec()) as server:
        async with talking(server):
            pass
        await server.empty()
        assert any(isinstance(one, ResumableSession) for one in parts)
