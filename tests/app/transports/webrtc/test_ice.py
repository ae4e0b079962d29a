"""A call's UDP ports: which they are, what strangers get there, and who counts as the client."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from struct import pack
from typing import Any, cast

import aioice.ice
import httpx
import pytest
from aioice import stun
from hypothesis import given
from hypothesis import strategies as st

from app.transports.webrtc.ice import PeerProtocol
from tests.app.rig import Running
from tests.app.transports.webrtc.caller import Caller, calling

PEER = ("192.0.2.7", 4000)
Way = tuple[str, int]


def ways(sdp: str) -> set[Way]:
    """The addresses in an answer; each of its sections has them."""
    return {(host, int(port)) for host, port in re.findall(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ", sdp)}


def attribute(kind: int, value: bytes) -> bytes:
    return pack("!HH", kind, len(value)) + value + bytes(-len(value) % 4)


def message(*attributes: bytes, kind: int = 1) -> bytes:
    body = b"".join(attributes)
    return pack("!HHI", kind, len(body), stun.COOKIE) + os.urandom(12) + body


STRANGE = {
    "short priority": message(attribute(0x24, b"\1")),
    "short fingerprint": message(attribute(0x8028, b"\1\2")),
    "controlling of three bytes": message(attribute(0x802A, b"abc")),
    "name that is no UTF-8": message(attribute(6, b"\xff\xfe")),
    "short error code": message(attribute(9, b"\0\0\4\1\xff"), kind=0x111),
    "no attributes": message(),
    "no integrity": message(attribute(6, b"a:b"), attribute(0x24, bytes(4))),
    "another method": message(kind=3),
    "a length that is none": message()[:2] + b"\x10\x00" + message()[4:],
    "DTLS": b"\x16\xfe\xfd" + bytes(60),
    "RTP": b"\x80\x60" + bytes(60),
    "empty": b"",
    "large": bytes(60_000),
}


@asynccontextmanager
async def stranger(way: Way) -> AsyncGenerator[tuple[Callable[[bytes], None], list[bytes]]]:
    """Says what it is given to a call's port, and collects what comes back."""
    got: list[bytes] = []

    class Mouth(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            got.append(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Mouth, remote_addr=way)
    try:
        yield transport.sendto, got
    finally:
        transport.close()


async def test_a_stranger_gets_nothing_and_leaves_no_trace(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Not a byte is answered, nothing is logged, nothing waits to be read, and the call goes on."""
    async with calling(server) as call:
        (way,) = ways(call.peer.remoteDescription.sdp)
        async with stranger(way) as (say, got):
            for datagram in list(STRANGE.values()) * 20:
                say(datagram)
            await call.say("say: still here", output_modalities=["text"])
            await call.until("response.done")
            assert not got
        assert not [one for one in caplog.records if one.exc_info]


class Receiver:
    """Of an aioice Connection, what a PeerProtocol asks."""

    def __init__(self) -> None:
        self.local_username = "a"
        self.requests: list[Any] = []
        self.data: list[bytes] = []
        self._check_list: list[Any] = []
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def request_received(self, message: Any, addr: Way, protocol: PeerProtocol) -> None:
        """A check with the right password is answered."""
        self.requests.append(message)
        if message.check_message_integrity(b"word"):
            answer = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE, message.transaction_id)
        else:
            answer = stun.Message(stun.Method.BINDING, stun.Class.ERROR, message.transaction_id)
            answer.attributes["ERROR-CODE"] = (401, "Unauthenticated")
        protocol.send_stun(answer, addr)

    def data_received(self, data: bytes, component: int) -> None:
        self.data.append(data)


class Wire:
    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Way]] = []

    def sendto(self, data: bytes, addr: Way) -> None:
        self.sent.append((data, addr))


def protocol(followed: Callable[[], None] = lambda: None) -> tuple[PeerProtocol, Receiver, Wire]:
    receiver, wire = Receiver(), Wire()
    made: Any = PeerProtocol(receiver, followed)  # pyright: ignore[reportArgumentType]
    made.transport, made.local_candidate = wire, type("Candidate", (), {"component": 1})
    return made, receiver, wire


def check(password: bytes) -> bytes:
    request = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    request.attributes.update({"USERNAME": "a:b", "PRIORITY": 1})
    request.add_message_integrity(password)
    return bytes(request)


async def test_who_shows_the_password_is_heard() -> None:
    """From the address that showed it, and from that one only."""
    follows: list[int] = []
    one, receiver, wire = protocol(lambda: follows.append(1))
    media = b"\x80" + bytes(40)
    for datagram in (media, check(b"wrong"), media):
        one.datagram_received(datagram, PEER)
    assert not receiver.data
    assert not wire.sent
    assert not follows
    one.datagram_received(check(b"word"), PEER)
    assert len(wire.sent) == 1
    assert follows
    one.datagram_received(media, PEER)
    one.datagram_received(media, ("192.0.2.8", 4000))
    assert receiver.data == [media]


async def test_who_does_not_know_the_name_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of strangers' checks costs no more than looking at them. The name is in the answer only."""
    parsed: list[bytes] = []
    really = stun.parse_message
    monkeypatch.setattr(stun, "parse_message", lambda data: (parsed.append(data), really(data))[1])
    one, receiver, _ = protocol()
    other = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    other.attributes.update({"USERNAME": "z:b", "PRIORITY": 1})
    other.add_message_integrity(b"word")
    for datagram in (bytes(other), message(kind=0x101)):
        one.datagram_received(datagram, PEER)
    assert (parsed, receiver.requests) == ([], [])
    one.datagram_received(check(b"word"), PEER)
    assert len(parsed) == 1


async def test_what_waits_to_be_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.transports.webrtc.ice.MAX_WAITING", 3)
    one, receiver, _ = protocol()
    one.datagram_received(check(b"word"), PEER)
    receiver.data_received = lambda data, component: receiver._queue.put_nowait(data)  # type: ignore[method-assign]
    for _ in range(10):
        one.datagram_received(b"\x80" + bytes(40), PEER)
    assert receiver._queue.qsize() == 3


@given(st.binary(max_size=200), st.sampled_from([1, 0x101, 0x111, 0x11, 3, 4]))
def test_any_datagram_is_taken_or_dropped(body: bytes, kind: int) -> None:
    async def take() -> None:
        one, _, wire = protocol()
        named = attribute(6, b"a:b") + body
        head = pack("!HHI", kind, len(named), stun.COOKIE) + bytes(12)
        for datagram in (body, head + named):
            one.datagram_received(datagram, PEER)
        assert not wire.sent

    asyncio.run(take())


async def test_calls_use_the_ports_that_are_set(serve_with: Any) -> None:
    """From the range, as long as one is free; then another call is refused until one ends."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind(("127.0.0.1", 0))
        first = min(taken.getsockname()[1], 65_000)
        async with serve_with(ice_ports=[first, first + 1]) as server:
            async with calling(server) as call:
                assert ways(call.peer.remoteDescription.sdp) == {("127.0.0.1", first + 1)}
                other = Caller(server)
                async with httpx.AsyncClient(base_url=server.http) as http:
                    sdp = {"content-type": "application/sdp"}
                    refused = await http.post("/v1/realtime/calls", content=await other.offer(), headers=sdp)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_port")
                await other.hang_up()
            await server.empty()
            async with calling(server):
                pass


async def test_an_address_from_outside_is_told_in_the_place_of_our_own(
    serve_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a container's port mapping; none of the machine's own addresses is in the answer."""
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.9"])
    async with serve_with(ice_address="127.0.0.1") as server, calling(server) as call:
        assert {host for host, _ in ways(call.peer.remoteDescription.sdp)} == {"127.0.0.1"}
        assert "127.0.0.9" not in call.peer.remoteDescription.sdp
        await call.say("say: here", output_modalities=["text"])
        await call.until("response.done")


async def test_calls_through_a_relay_only_tell_nothing_where_there_is_none(
    serve_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The TURN server does not answer: no call, and no address of the machine's."""
    monkeypatch.setattr("app.transports.webrtc.ice.SERVERS_S", 0.1)
    servers = [{"urls": ["turn:127.0.0.1:9"], "secret": "north"}]
    async with serve_with(ice_relay_only=True, ice_servers=servers) as server:
        caller = Caller(server)
        async with httpx.AsyncClient(base_url=server.http) as http:
            headers = {"content-type": "application/sdp"}
            refused = await http.post("/v1/realtime/calls", content=await caller.offer(), headers=headers)
            told = (await http.get("/v1/realtime/ice-servers")).json()["ice_servers"]
        await caller.hang_up()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_port")
        assert "127.0.0.1" not in refused.text
        assert told[0]["credential"]
        assert "north" not in str(told)


class RefusingTurn(asyncio.DatagramProtocol):
    """A TURN server that gives no relay."""

    def __init__(self, code: int, reason: str) -> None:
        self.error = (code, reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        asked = stun.parse_message(data)
        refusal = stun.Message(asked.message_method, stun.Class.ERROR, asked.transaction_id)
        refusal.attributes |= {"ERROR-CODE": self.error, "REALM": "north", "NONCE": b"once"}
        self.transport.sendto(bytes(refusal), addr)


@pytest.mark.parametrize(
    ("code", "reason", "hint"),
    [
        (401, "Unauthorized", "must match server.ice_servers"),
        (486, "Allocation Quota Reached", "total-quota"),
        (508, "Insufficient Capacity", "max-port"),
    ],
)
async def test_a_turn_server_that_refuses_is_one_line_that_says_what_to_correct(
    serve_with: Any, monkeypatch: pytest.MonkeyPatch, code: int, reason: str, hint: str
) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "app.transports.webrtc.ice.log", lambda event, **fields: lines.append({"event": event, **fields})
    )
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(partial(RefusingTurn, code, reason), local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    servers = [{"urls": [f"turn:127.0.0.1:{port}"], "username": "parley", "credential": "wrong"}]
    async with serve_with(ice_servers=servers) as server:
        caller = Caller(server)
        async with httpx.AsyncClient(base_url=server.http) as http:
            headers = {"content-type": "application/sdp"}
            answer = await http.post("/v1/realtime/calls", content=await caller.offer(), headers=headers)
            assert answer.status_code == 201, "the call may find another way"
        await caller.hang_up()
    transport.close()
    (line,) = lines
    assert (line["event"], line["server"]) == ("call.no_relay", f"127.0.0.1:{port}")
    assert f"{code} - {reason}" in line["error"]
    assert hint in line["hint"]
    assert "wrong" not in str(line), "a log line holds no password"


async def test_an_offer_that_nobody_follows_ends_soon(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a client that has shown itself may take to connect."""
    monkeypatch.setattr("app.transports.webrtc.peer_connection.FOLLOW_S", 0.1)
    caller = Caller(server)
    async with httpx.AsyncClient(base_url=server.http) as http:
        headers = {"content-type": "application/sdp"}
        answer = await http.post("/v1/realtime/calls", content=await caller.offer(), headers=headers)
        assert answer.status_code == 201
    await server.empty()
    await caller.hang_up()
