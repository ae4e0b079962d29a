"""A client that sends more than it may: slowed, with every command obeyed, and left if it goes on for a minute."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from app.limits import fair_scheduler
from app.limits.fair_scheduler import LoopTimeBudget
from app.transports.socket_protocol import SocketProtocol
from tests.app.rig import Running, eventually, silence, talking
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


async def test_one_who_sends_more_bytes_is_slowed_and_obeyed(serve_with: Any) -> None:
    """Half a megabyte at once, and then 50 kB a second: over a socket, and in the body of a request."""
    async with serve_with(limits={"received_mb_s": 0.05}) as server, talking(server) as client:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await client.append(silence(8.0))  # 512 kB of base64
        await client.send("input_audio_buffer.clear", event_id="x" * 25_000)
        await client.until("input_audio_buffer.cleared")
        assert loop.time() - begun_s > 0.5
        body = {"model": "script", "messages": [{"role": "user", "content": "say: hello"}], "user": "x" * 600_000}
        begun_s = loop.time()
        async with httpx.AsyncClient(base_url=server.http, timeout=60) as http:
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        assert loop.time() - begun_s > 0.5


async def test_all_that_is_done_for_a_socket_is_one_part_of_the_loops_time(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames, its messages and its session: a message that stood in line for each waited three times as long."""
    parts, count = set[LoopTimeBudget](), LoopTimeBudget.count

    def counted(loop_time: LoopTimeBudget) -> None:
        parts.add(loop_time)
        count(loop_time)

    async with talking(server) as client:
        monkeypatch.setattr(LoopTimeBudget, "count", counted)
        await client.ask("say: one two")
    assert len(parts) == 1


async def test_each_of_many_requests_at_once_waits_for_its_turn(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in one piece: all of them done in the turn that it was parsed in, sixty clients stop everybody."""
    joined, join = list[LoopTimeBudget](), LoopTimeBudget.join

    def counted(loop_time: LoopTimeBudget, go: Callable[[], None]) -> None:
        joined.append(loop_time)
        join(loop_time, go)

    monkeypatch.setattr(LoopTimeBudget, "join", counted)
    monkeypatch.setattr(fair_scheduler, "SLICE_S", 1e-9)  # whatever is done uses it up
    monkeypatch.setattr(fair_scheduler, "AT_ONCE_S", 1e-9)
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request * 19 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (await reader.read()).count(b"HTTP/1.1 200") == 20
    writer.close()
    assert len(joined) >= 20


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
    monkeypatch.setattr("app.limits.rate_limiter.BURST_S", 1.0)
    monkeypatch.setattr("app.limits.rate_limiter.PATIENCE_S", 0.1)
    async with serve_with(limits={"messages_s": 200}) as server, talking(server) as beside:
        reader, writer = await upgraded(server.port)
        writer.write(flood * (3000 if len(flood) < 1000 else 1))
        async with asyncio.timeout(60):
            said = await reader.read(-1)
        assert (1008).to_bytes(2, "big") + b"message rate exceeded" in said
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


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 6000
REQUESTS = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 6000


@pytest.mark.parametrize("flood", [pytest.param(CHUNKS, id="chunks"), pytest.param(REQUESTS, id="requests")])
async def test_one_who_goes_on_over_http_is_left_too(
    serve_with: Any, flood: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.limits.rate_limiter.BURST_S", 1.0)
    monkeypatch.setattr("app.limits.rate_limiter.PATIENCE_S", 0.1)
    async with serve_with(limits={"messages_s": 20}) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(flood)
        said = b""
        with suppress(ConnectionError):  # it is closed with much of that unread
            async with asyncio.timeout(60):
                while data := await reader.read(65536):
                    said += data
        writer.close()
        assert said.count(b"HTTP/1.1 200") < 1000
        async with talking(server) as beside:
            await beside.alive()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_over_http_goes_through_whatever_its_pieces(slow: Any, chunked: bool) -> None:
    """Of a known length its pieces cost nothing; in chunks as clients make them they are few."""
    body = json.dumps({"model": "x", "messages": [{"role": "user", "content": "say: hello"}]}).encode()
    padded = body[:-1] + b" " * 10_000_000 + b"}"

    async def pieces() -> AsyncGenerator[bytes]:
        for at in range(0, len(padded), 65536):
            yield padded[at : at + 65536]

    async with slow as server, httpx.AsyncClient(base_url=server.http, timeout=60) as http:
        headers = {"content-type": "application/json"}
        content = pieces() if chunked else padded
        answer = await http.post("/v1/chat/completions", content=content, headers=headers)
        assert answer.status_code == 200
