"""A client that sends more than it may: slowed, with every command obeyed, and left if it goes on for a minute."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from app.transports.socket_protocol import SocketProtocol
from tests.app.rig import Running, eventually, talking
from tests.attacks.raw import MORE, PING, PONG, TEXT, frame, upgraded

CLEAR = frame(TEXT, b'{"type":"input_audio_buffer.clear"}')


@pytest.fixture
def slow(serve_with: Any) -> Any:
    """A server at which a client may send 200 messages at once, and then 20 a second."""
    return serve_with(limits={"messages_s": 20})


async def test_one_who_sends_more_is_slowed_and_obeyed(slow: Any) -> None:
    async with slow as server, talking(server) as client:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for n in range(240):
            await client.send("input_audio_buffer.clear", event_id=str(n))
        for _ in range(240):
            await client.until("input_audio_buffer.cleared")
        assert loop.time() - begun_s > 1.0  # 40 more than at once
        await client.alive()


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(frame(TEXT, b"{}"), id="texts"),
        pytest.param(frame(TEXT), id="empty texts"),
        pytest.param(frame(PING), id="pings"),
        pytest.param(frame(PONG, b"x" * 125), id="pongs"),
        pytest.param(frame(TEXT, whole=False) + frame(MORE, whole=False) * 3000, id="continuations"),
    ],
)
async def test_one_who_goes_on_is_left(serve_with: Any, flood: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the frames are: they are counted, slowed, and after a minute (here: at once) that is the end."""
    monkeypatch.setattr("app.pace.BURST_S", 1.0)
    monkeypatch.setattr("app.pace.PATIENCE_S", 0.1)
    async with serve_with(limits={"messages_s": 200}) as server, talking(server) as beside:
        reader, writer = await upgraded(server.port)
        writer.write(flood * (3000 if len(flood) < 1000 else 1))
        async with asyncio.timeout(60):
            said = await reader.read(-1)
        assert (1008).to_bytes(2, "big") + b"more messages than" in said
        writer.close()
        await beside.alive()
        await eventually(lambda: server.metric("parley_sessions") == 1)


async def test_what_is_left_unread_of_a_slow_client_is_no_silence(slow: Any) -> None:
    """Its pong lies behind what we have not read: that the deadline for it passes is not the client's fault."""
    async with slow as server, talking(server) as client:
        for _ in range(220):
            await client.send("input_audio_buffer.clear")
        (protocol,) = server.server.server_state.connections
        assert isinstance(protocol, SocketProtocol)
        await eventually(lambda: protocol._intake.behind)
        protocol.keepalive_timeout()
        assert not protocol.close_sent
        assert protocol.pong_timer is not None
        await client.until("input_audio_buffer.cleared")


async def test_a_minute_of_sound_at_once_goes_through(server: Running) -> None:
    """As after a laptop's sleep, in pieces of 20 ms; and a history of fifty items before it."""
    async with talking(server) as client:
        await client.configure(audio={"input": {"turn_detection": None}})
        for n in range(50):
            await client.say(f"item {n}")
        piece = json.dumps({"type": "input_audio_buffer.append", "audio": "AAAA" * 320})
        for _ in range(3000):
            await client.socket.send(piece)
        await client.send("input_audio_buffer.commit")
        await client.until("input_audio_buffer.committed")
        assert client.of("error") == []
        try:
            await client.alive()
        except ConnectionClosed as closed:
            pytest.fail(str(closed))
