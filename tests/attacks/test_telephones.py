"""Floods, forged requests and unconfirmed calls at the ports of telephones do not delay any other client."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.app.transports.telephone.exchanges import SDP, Reached, SipPhone, sip
from tests.attacks.raw import pushed, upgraded
from tests.attacks.target import Bystander, Target, Waits, attacked, elsewhere, target

pytestmark = pytest.mark.attacks

UNGUARDED = """
from app.limits.fair_scheduler import LoopTimeBudget
from app.transports.telephone.audiosocket import AudioSocketStream
async def never(*args): pass
AudioSocketStream._keep_pace = LoopTimeBudget.pause = LoopTimeBudget.turn = never
"""
"""AudioSocket's messages are read as fast as they come, without a share of the loop's time."""

UNCONFIRMED = """
from app.transports.telephone.sip_dialog import Dialog
async def at_once(self): pass
Dialog.confirmation = at_once
"""
"""A call that nobody has confirmed is a session."""

FOR_S = 3.0
SILENCE = bytes([0xFF]) * 160
SECTION = {"telephone": {"sip": "127.0.0.1:0", "audiosocket": "127.0.0.1:0", "greeting": "Say hello."}}


def door(aim: Target) -> Reached:
    """The ports that the target's log names."""
    ports = {kind: int(port) for kind, port in re.findall(r"(\w+)\.listening port=(\d+)", aim.log)}
    return Reached(aim.port, ports["audiosocket"], ports["sip"], 120.0)


def said(kind: int, payload: bytes = b"") -> bytes:
    """A message of AudioSocket."""
    return struct.pack(">BH", kind, len(payload)) + payload


AUDIOSOCKET = {
    "empty sound": said(0x10) * 400_000,
    "one sample": said(0x10, b"\0\0") * 200_000,
    "half a minute at a time": said(0x10, bytes(65_534)) * 200,
    "keys": said(0x03, b"1") * 200_000,
    "keys that no telephone has": said(0x03, b"x") * 200_000,
    "long keys": said(0x03, b"1" * 60_000) * 200,
}


async def audiosocket(port: int, data: bytes) -> None:
    """Flood as one confirmed call."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said(0x01, uuid.uuid4().bytes))
    await asyncio.sleep(0.2)
    await asyncio.gather(pushed(writer, data, FOR_S), asyncio.sleep(FOR_S))
    writer.transport.abort()


async def beside(aim: Target, attack: Callable[[], Awaitable[Any]]) -> Waits:
    async with Bystander(aim) as bystander:
        with elsewhere():
            await attack()
    return bystander.waits


def nobody_waits(waits: dict[str, Waits]) -> None:
    print({name: (seen.rounds, round(seen.median_ms, 1), round(seen.longest_ms)) for name, seen in waits.items()})
    assert {name: seen.broken for name, seen in waits.items() if seen.broken} == {}
    assert {name: round(seen.longest_ms) for name, seen in waits.items() if seen.longest_ms > 100} == {}


async def test_nobody_waits_for_an_exchange_that_floods(tmp_path: Path) -> None:
    async with target(tmp_path, SECTION) as aim:
        port, waits = door(aim).audiosocket, dict[str, Waits]()
        for name, data in AUDIOSOCKET.items():
            waits[name] = await beside(aim, lambda: asyncio.gather(*(audiosocket(port, data) for _ in range(6))))  # noqa: B023
        assert aim.grown_mb() < 100
        assert aim.tracebacks == 0
    nobody_waits(waits)


async def test_without_their_pace_everybody_waits(tmp_path: Path) -> None:
    async with target(tmp_path, SECTION, before=UNGUARDED) as aim:
        port, data = door(aim).audiosocket, AUDIOSOCKET["empty sound"]
        waits = await beside(aim, lambda: asyncio.gather(*(audiosocket(port, data) for _ in range(6))))
    assert waits.longest_ms > 300


async def test_connections_that_say_nothing_keep_no_exchange_out(tmp_path: Path) -> None:
    async with target(tmp_path, SECTION) as aim:
        port = door(aim).audiosocket
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said(0x01, uuid.uuid4().bytes))
        async with asyncio.timeout(5):
            assert (await reader.readexactly(3))[0] == 0x10, "the greeting"
        for _, one in (*silent, (reader, writer)):
            one.transport.abort()


def request(method: str, call: str, port: int, body: str = "", number: int = 1) -> bytes:
    """A SIP request from a port where nobody may read the answer."""
    lines = [
        f"{method} sip:bot@127.0.0.1 SIP/2.0",
        f"Via: SIP/2.0/UDP 127.0.0.1:{port};branch=z9hG4bK{call}{number};rport",
        "From: <sip:c@127.0.0.1>;tag=f",
        "To: <sip:bot@127.0.0.1>",
        f"Call-ID: {call}",
        f"CSeq: {number} {method}",
        f"Contact: <sip:c@127.0.0.1:{port}>",
        f"Content-Length: {len(body)}",
        "",
        body,
    ]
    return "\r\n".join(lines).encode()


def udp(host: str = "127.0.0.1") -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_000_000)
    one.bind((host, 0))
    return one


def received(one: socket.socket) -> tuple[int, int]:
    """Read all datagrams that wait in a socket. Returns their number and bytes."""
    count = size = 0
    with suppress(BlockingIOError):
        while True:
            size += len(one.recv(65_536))
            count += 1
    return count, size


def to(one: socket.socket, port: int) -> Callable[[bytes], object]:
    """Return a function that sends a datagram to a port of this machine."""
    return lambda data: one.sendto(data, ("127.0.0.1", port))


async def sent(send: Callable[[bytes], object], datagrams: list[bytes]) -> None:
    """Send for at most FOR_S, as fast as the socket accepts the datagrams."""
    end_s = asyncio.get_running_loop().time() + FOR_S
    for n, data in enumerate(datagrams):
        with suppress(BlockingIOError):
            send(data)
        if n % 20 == 0:
            await asyncio.sleep(0.001)
            if asyncio.get_running_loop().time() > end_s:
                return


SIP = {
    "options": [request("OPTIONS", "o", 9)] * 100_000,
    "calls that do not exist": [request("BYE", f"b{n}", 9) for n in range(30_000)],
    "invitations": [request("INVITE", f"i{n}", 9, SDP.format(port=4000, law=0)) for n in range(30_000)],
    "offers with host names": [
        request("INVITE", f"h{n}", 9, SDP.format(port=4000, law=0).replace("4 127.0.0.1", "4 localhost"))
        for n in range(30_000)
    ],
    "many headers": [request("OPTIONS", "m", 9).replace(b"Contact", b"X: y\r\n" * 2000 + b"Contact")] * 20_000,
    "many values": [request("OPTIONS", "v", 9).replace(b"Via: ", b"Via: " + b"a," * 7000)] * 20_000,
    "no messages": [b"\r\n\r\n"] * 100_000,
}


async def test_nobody_waits_for_sip_that_floods(tmp_path: Path) -> None:
    async with target(tmp_path, SECTION) as aim:
        port, waits = door(aim).sip, dict[str, Waits]()
        for name, datagrams in SIP.items():
            with closing(udp()) as one:
                waits[name] = await beside(aim, lambda: sent(to(one, port), datagrams))  # noqa: B023
        assert aim.grown_mb() < 100
        assert aim.tracebacks == 0
        assert len(aim.log) < 200_000
    nobody_waits(waits)


async def test_nobody_waits_for_a_call_whose_packets_flood(tmp_path: Path) -> None:
    """Sound, keys and nonsense, a hundred times as fast as they may come."""
    head = [struct.pack(">BBHII", 0x80, kind, n & 0xFFFF, n * 160, 7) for n in range(20_000) for kind in (0, 101)]
    floods = {
        "sound": [one + SILENCE for one in head[::2]],
        "keys": [one + struct.pack(">BBH", n % 16, 0x8A, 160) for n, one in enumerate(head[1::2])],
        "no packets": [b"\x80" * 1400] * 20_000,
        "another stream each": [struct.pack(">BBHII", 0x80, 0, 1, 1, n) + SILENCE for n in range(20_000)],
    }
    async with target(tmp_path, SECTION) as aim, sip(door(aim)) as phone:

        def play(data: bytes) -> None:
            phone.rtp.transport.sendto(data, phone.rtp.server)

        waits = dict[str, Waits]()
        for name, datagrams in floods.items():
            waits[name] = await beside(aim, lambda: sent(play, datagrams))  # noqa: B023
        assert aim.tracebacks == 0
        assert aim.grown_mb() < 100
    nobody_waits(waits)


@asynccontextmanager
async def invited(aim: Target, count: int) -> AsyncGenerator[tuple[socket.socket, socket.socket, int]]:
    """``count`` calls that nobody confirms: the caller's socket, the socket named for RTP, and the bytes sent."""
    with closing(udp()) as caller, closing(udp()) as victim:
        size = 0
        for n in range(count):
            data = request("INVITE", f"c{n}", caller.getsockname()[1], SDP.format(port=victim.getsockname()[1], law=0))
            size += caller.sendto(data, ("127.0.0.1", door(aim).sip))
            await asyncio.sleep(0.004)
        yield caller, victim, size


async def browser_gets_in(aim: Target) -> bool:
    try:
        _, writer = await upgraded(aim.port)
    except ConnectionError:
        return False
    writer.transport.abort()
    return True


async def test_calls_that_nobody_confirms_take_no_session_and_are_sent_nothing(tmp_path: Path) -> None:
    async with attacked(tmp_path, SECTION) as (aim, bystander, _):
        async with invited(aim, 70) as (caller, victim, size):
            await asyncio.sleep(5)
            assert await browser_gets_in(aim)
            async with sip(door(aim)) as phone:
                async with asyncio.timeout(5):
                    while not phone.rtp.packets:  # noqa: ASYNC110 - it lasts a moment
                        await asyncio.sleep(0.01)
            assert received(victim) == (0, 0)
            answered = received(caller)[1]
            print(f"{answered / size:.1f} bytes of SIP for each byte, none of RTP")
            assert answered < 6 * size
        assert aim.grown_mb() < 100
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= 100


async def test_calls_that_are_sessions_at_once_take_all_that_telephones_may(tmp_path: Path) -> None:
    """The control: a browser still gets in by the telephones' share, and a telephone does not."""
    async with target(tmp_path, SECTION, before=UNCONFIRMED) as aim, invited(aim, 70) as (_, victim, _size):
        await asyncio.sleep(2)
        assert received(victim)[0] > 100
        assert await browser_gets_in(aim)
        with pytest.raises(AssertionError, match="503"):
            async with sip(door(aim)):
                pass


async def test_a_call_outlives_everybody_who_knows_only_its_name(tmp_path: Path) -> None:
    """From the caller's own machine and from other addresses of ``sip_peers``, with every method and a wrong tag."""
    async with target(tmp_path, SECTION) as aim, sip(door(aim)) as phone, Strangers(phone, door(aim)) as strangers:
        for tag in ("", "wrong", "f"):
            for number, method in enumerate(("BYE", "CANCEL", "INVITE", "ACK", "NOTIFY", "REFER"), 50):
                strangers.say(method, number, tag)
        await asyncio.sleep(1)
        assert "call.closed" not in aim.log
        assert strangers.packets == 0
        assert aim.tracebacks == 0


class Strangers:
    """Others who know a call's Call-ID, at two addresses, with a place for sound of their own."""

    def __init__(self, phone: SipPhone, reached: Reached) -> None:
        self._name = phone.name
        self._port = reached.sip

    async def __aenter__(self) -> Strangers:
        self._sockets = [udp(), udp("127.0.0.2")]
        self._sound = udp()
        return self

    async def __aexit__(self, *error: object) -> None:
        for one in (*self._sockets, self._sound):
            one.close()

    @property
    def packets(self) -> int:
        return received(self._sound)[0]

    def say(self, method: str, number: int, tag: str) -> None:
        body = SDP.format(port=self._sound.getsockname()[1], law=0) if method == "INVITE" else ""
        for one in self._sockets:
            data = request(method, self._name, one.getsockname()[1], body, number)
            for caller in (b"tag=f", b"tag=caller"):
                to = b"To: <sip:bot@127.0.0.1>" + (b";tag=" + tag.encode() if tag else b"")
                forged = data.replace(b"tag=f", caller).replace(b"To: <sip:bot@127.0.0.1>", to)
                one.sendto(forged, ("127.0.0.1", self._port))
