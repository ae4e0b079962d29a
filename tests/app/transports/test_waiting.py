"""A full server: refused at once, or waiting in line."""

from __future__ import annotations

import json
from typing import Any, ClassVar, cast

import pytest
from fastapi import WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.limits.admission_queue import AdmissionQueue, QueueFull, Waiter
from app.limits.rate_limiter import MESSAGE_BYTES
from app.service import Service
from app.transports.websocket import EARLY_BYTES, SocketTransport
from tests.app.rig import Client, Running, script_spec, talking


class Patient(Client):
    """A client that is not greeted at once; the place in line is no event of the protocol's."""

    async def position(self) -> int:
        event = json.loads(await self.socket.recv())
        assert event["type"] == "parley.queue.updated"
        return event["position"]


@pytest.fixture
def full(serve_with: Any) -> Any:
    return lambda **limits: serve_with(limits={"sessions": 1, **limits})


def line(server: Running) -> Any:
    return connect(f"{server.ws}?wait=true", max_queue=None)


async def test_who_waits_is_told_his_place_and_gets_his_turn(full: Any) -> None:
    async with full() as server:
        async with line(server) as socket_a:
            first = Patient(socket_a)
            await first.until("session.created")  # there was a place
            async with line(server) as socket_b, line(server) as socket_c:
                second, third = Patient(socket_b), Patient(socket_c)
                assert [await second.position(), await third.position()] == [1, 2]
                await second.send("session.update", session={"instructions": "Be kind."})
                await socket_a.close()
                await second.until("session.created")
                assert (await second.until("session.updated"))["session"]["instructions"] == "Be kind."
                await second.alive()
                assert await third.position() == 1
                await socket_b.close()
                await third.until("session.created")
                await third.alive()
                waiting = [
                    count for kind, _, count in server.service.admission.quotas.held() if kind == "waiting" and count
                ]
                assert waiting == [], "who is served waits no more"
        await server.empty()


async def test_who_leaves_the_line_makes_room_in_it(full: Any) -> None:
    async with full() as server, talking(server) as client:
        async with line(server) as socket_b, line(server) as socket_c:
            second, third = Patient(socket_b), Patient(socket_c)
            assert [await second.position(), await third.position()] == [1, 2]
            await socket_b.close()
            assert await third.position() == 1
            await client.socket.close()
            await third.until("session.created")
        await server.empty()


async def test_without_the_wish_one_is_refused_at_once_and_so_is_who_finds_the_line_full(full: Any) -> None:
    async with full(waiting=1) as server, talking(server), line(server) as socket:
        assert await Patient(socket).position() == 1
        for query in ["", "?wait=true"] * 10:
            await refused(server, query)  # how soon: `parley bench`, which holds it to a bar


async def refused(server: Running, query: str) -> None:
    with pytest.raises(InvalidStatus) as answer:
        await connect(server.ws + query)
    assert answer.value.response.status_code == 503
    assert json.loads(answer.value.response.body or b"{}")["error"]["code"] == "server_full"


async def test_a_wait_that_is_too_long_ends_with_an_error(full: Any) -> None:
    async with full(wait_s=0.05) as server, talking(server) as client:
        async with line(server) as socket:
            waiting = Patient(socket)
            assert await waiting.position() == 1
            assert (await waiting.error())["code"] == "server_full"
            await socket.wait_closed()
            assert socket.close_code == 1013
        await client.alive()


async def test_who_waits_is_sent_away_when_the_server_drains(full: Any) -> None:
    async with full() as server, talking(server), line(server) as socket:
        assert await Patient(socket).position() == 1
        server.server.leave()
        await socket.wait_closed()
        assert socket.close_code == 1001


async def test_empty_messages_take_room_in_the_line_too() -> None:
    """And what each costs does not grow with those that came before."""
    came = 0

    class Socket:
        scope: ClassVar[dict[str, Any]] = {}

        async def receive(self) -> dict[str, Any]:
            nonlocal came
            came += 1
            assert came < 10_000, "it never ends"
            return {"type": "websocket.receive", "text": ""}

    await SocketTransport(cast("WebSocket", Socket()), Service(script_spec())).collect()
    assert came == EARLY_BYTES / MESSAGE_BYTES


def test_the_line() -> None:
    places: dict[str, list[int]] = {name: [] for name in "abc"}
    waiting = AdmissionQueue(2)
    a, b = (waiting.join(places[name].append) for name in "ab")
    with pytest.raises(QueueFull):
        waiting.join(places["c"].append)
    waiting.call()
    assert a.called.is_set()
    assert (waiting.given, len(waiting), places["b"]) == (1, 1, [2, 1])
    waiting.leave(a)
    waiting.leave(a)
    waiting.leave(b)
    waiting.leave(Waiter(places["c"].append))
    assert (waiting.given, len(waiting), places["c"]) == (0, 0, [])
    waiting.call()
