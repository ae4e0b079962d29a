"""A name server that knows what it is told: the addresses of pods in a cluster, as HAProxy asks for them (RFC 1035)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from ipaddress import IPv4Address

ADDRESS = struct.pack("!HH", 1, 1)
"""A question's type and class: an address of IPv4, in the Internet."""
ANSWERED, NO_SUCH_NAME = 0x8180, 0x8183
TTL_S = 5


@asynccontextmanager
async def name_server(addresses: Mapping[str, str]) -> AsyncGenerator[int]:
    """The port at 127.0.0.1 at which it answers while the block lasts; ``addresses`` may change meanwhile."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Names(addresses), ("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


class _Names(asyncio.DatagramProtocol):
    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(answer(data, self._addresses), addr)


def answer(asked: bytes, addresses: Mapping[str, str]) -> bytes:
    """What is said to one question."""
    end = asked.index(0, 12) + 5
    question, kind = asked[12:end], asked[end - 4 : end]
    address = addresses.get(_name(question))
    code = ANSWERED if address else NO_SUCH_NAME
    found = [b"\xc0\x0c", kind, struct.pack("!IH", TTL_S, 4), IPv4Address(address).packed] if address else []
    if kind != ADDRESS:
        found = []
    return asked[:2] + struct.pack("!5H", code, 1, bool(found), 0, 0) + question + b"".join(found)


def _name(question: bytes) -> str:
    labels, at = list[str](), 0
    while size := question[at]:
        labels.append(question[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels)
