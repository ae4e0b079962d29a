"""Clients that leave, stall or swarm: the server frees what they held, and nobody else notices."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from typing import Any

import httpx
import pytest

from app.transports.tcp_connections import DEADLINES_S, State
from tests.app.rig import eventually, tone


@pytest.mark.parametrize(
    "moment", ["before an answer", "listening", "in the first words", "in mid answer", "at the end"]
)
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.fault("N4.1", "N4.2")
async def test_a_client_that_vanishes_frees_everything(moment: str, how: str, server: Any, talk: Any) -> None:
    async with talk(server) as client:
        match moment:
            case "listening":
                await client.append(tone(0.5))
                await client.until("input_audio_buffer.speech_started")
            case "in the first words":
                await (await client.say("long 500")).send("response.create")
                await client.until("response.created")
            case "in mid answer":
                await (await client.say("long 500")).send("response.create")
                for _ in range(10):
                    await client.until("response.output_audio.delta")
            case "at the end":
                await client.ask("say: one")
            case _:
                pass
        if how == "reset":
            client.socket.transport.abort()
        else:
            await client.socket.close()
        await server.empty()
    async with talk(server) as other:
        await other.alive()


@pytest.mark.fault("N4.1")
async def test_aborts_at_random_points_leave_the_baseline(server: Any, talk: Any) -> None:
    """Many short lives, each cut after a different number of events."""
    for events in range(24):
        async with talk(server) as client:
            await (await client.say("long 30")).send("response.create")
            for _ in range(events):
                await client.next()
            client.socket.transport.abort()
    await server.empty()
    async with talk(server) as other:
        await other.alive()


@pytest.mark.fault("N2.1")
async def test_a_client_that_never_reads_is_disconnected(serve_with: Any, talk: Any) -> None:
    """It asks for its own ten seconds of audio again and again, and takes nothing."""
    async with serve_with(limits={"send_timeout_s": 0.3}) as server, talk(server) as other:
        reader, writer = await _raw(server)
        audio = base64.b64encode(bytes(480_000)).decode()
        item = {"id": "mine", "type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}
        await _send(writer, {"type": "conversation.item.create", "item": item})
        for _ in range(40):
            await _send(writer, {"type": "conversation.item.retrieve", "item_id": "mine"})
        await eventually(lambda: server.metric("parley_sessions") == 1)
        await _reset(reader)
        writer.close()
        await other.alive()


@pytest.mark.fault("N2.1")
async def test_a_slow_reader_that_overflows_its_bound_is_disconnected(serve_with: Any, talk: Any) -> None:
    """With a bound of almost nothing one packet is too much, however slowly they come: the bound ends it."""
    async with serve_with(limits={"unsent_s": 0.005}) as server, talk(server) as client:
        await (await client.say("long 20")).send("response.create")
        with pytest.raises(Exception, match=r"close frame|reset"):
            await client.until("response.done")
        await server.empty()


@pytest.mark.slow
@pytest.mark.fault("N4.2", "N4.5")
async def test_a_thousand_quick_connects(server: Any, talk: Any) -> None:
    """Half of them leave without a close frame."""
    asyncio.get_running_loop().set_debug(False)  # it makes 1000 handshakes five times slower

    async def knock(n: int) -> None:
        reader, writer = await _raw(server)
        if n % 2:
            writer.write(b"\x88\x80" + bytes(4))
            await reader.read()
        writer.transport.abort()

    for _ in range(50):
        async with asyncio.TaskGroup() as tasks:
            for n in range(20):
                tasks.create_task(knock(n))
    await server.empty()
    async with talk(server) as client:
        await client.alive()


@pytest.mark.fault("N4.3")
async def test_half_handshakes_hold_no_session_and_no_socket_for_long(
    monkeypatch: pytest.MonkeyPatch, server: Any, talk: Any
) -> None:
    monkeypatch.setitem(DEADLINES_S, State.HEAD, 0.5)
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for one in sockets:
        one.sendall(b"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert server.metric("parley_sessions") == 0
    async with talk(server) as client:
        await client.alive()
        await eventually(lambda: len(server.server.server_state.connections) == 1)
        await client.alive()
    for one in sockets:
        one.close()


async def test_a_session_expires(serve_with: Any, talk: Any) -> None:
    async with serve_with(limits={"session_s": 0.3}) as server, talk(server) as client:
        assert (await client.error())["code"] == "session_expired"
        await client.socket.wait_closed()
        assert client.socket.close_code == 1001
        await server.empty()


async def test_eight_sessions_at_once_each_get_their_own_answer(server: Any, talk: Any) -> None:
    async def one(n: int) -> None:
        async with talk(server) as client:
            response = await client.ask(f"say: session {n} speaks")
            assert response["output"][0]["content"][0]["transcript"] == f"session {n} speaks"

    async with asyncio.TaskGroup() as tasks:
        for n in range(8):
            tasks.create_task(one(n))
    assert server.metric("parley_responses_total", status="completed") == 8


async def _raw(server: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket of which we never read: upgraded by hand, with the smallest of windows."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
    key = base64.b64encode(bytes(16)).decode()
    writer.write(
        f"GET /v1/realtime HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _send(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    """One masked text frame; the mask is zero."""
    data = json.dumps(event).encode()
    writer.write(b"\x81\xff" + len(data).to_bytes(8, "big") + bytes(4) + data)
    await writer.drain()


async def _reset(reader: asyncio.StreamReader) -> None:
    """What was on its way is still there; then the connection is gone."""
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass


async def test_small_messages_are_not_held_back(server: Any, talk: Any) -> None:
    """With Nagle's algorithm on, what follows an answer's first packet waits 40 ms for its acknowledgement."""
    async with talk(server), httpx.AsyncClient(base_url=server.http) as http:
        await http.get("/livez")
        sockets = [one.transport.get_extra_info("socket") for one in server.server.server_state.connections]
        assert len(sockets) == 2
        assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets)


@pytest.mark.fault("N1.1")
async def test_a_half_open_peer_is_found_by_pings(monkeypatch: pytest.MonkeyPatch, serve_with: Any) -> None:
    """Its machine is gone: no close, no reset, no pong."""
    monkeypatch.setattr("app.server.PING_S", 0.1)
    monkeypatch.setattr("app.server.PONG_S", 0.2)
    async with serve_with() as server:
        reader, writer = await _raw(server)
        await eventually(lambda: server.metric("parley_sessions") == 1)
        await eventually(lambda: server.metric("parley_sessions") == 0)
        await _reset(reader)
        writer.close()


@pytest.mark.fault("N2.1")
async def test_a_peer_that_says_goodbye_and_reads_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, serve_with: Any
) -> None:
    """Megabytes are on their way to it: without a deadline they would keep its socket open for ever."""
    monkeypatch.setitem(DEADLINES_S, State.CLOSING, 0.3)
    audio = base64.b64encode(bytes(480_000)).decode()
    item = {"id": "mine", "type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}
    async with serve_with(limits={"send_timeout_s": 60}) as server:
        reader, writer = await _raw(server)
        await _send(writer, {"type": "conversation.item.create", "item": item})
        for _ in range(40):
            await _send(writer, {"type": "conversation.item.retrieve", "item_id": "mine"})
        stuck = server.server.server_state.connections
        await eventually(lambda: any(one.transport.get_write_buffer_size() for one in stuck))
        writer.write(b"\x88\x80" + bytes(4))
        await eventually(lambda: not server.metric("parley_sessions") and not stuck)
        await _reset(reader)
        writer.close()
