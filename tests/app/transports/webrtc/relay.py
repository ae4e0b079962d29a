"""A lossy network: a UDP relay between one caller and the server that drops and delays what goes through."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

Address = tuple[str, int]


class Relay(asyncio.DatagramProtocol):
    """Both ways; seeded. ``loss``: the share that is dropped. ``spike``: all is held, and then let go at once."""

    def __init__(self, seed: int = 7) -> None:
        self.loss = 0.0
        self.deaf = False  # whether nothing reaches the client
        self.dropped = self.passed = 0
        self._random = random.Random(seed)
        self._server: Address | None = None
        self._client: Address | None = None
        self._held: list[tuple[bytes, Address]] | None = None
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if addr != self._server:
            self._client = addr
        to = self._client if addr == self._server else self._server
        if to is None:
            return
        if self._random.random() < self.loss or (self.deaf and to == self._client):
            self.dropped += 1
        elif self._held is not None:
            self._held.append((data, to))
        else:
            self._send(data, to)

    def between(self, answer: str) -> str:
        """An SDP answer whose one address is the relay's."""
        found = re.search(r"a=candidate:\S+ 1 udp \d+ (\S+) (\d+)", answer)
        assert found
        assert self._transport
        self._server = (found[1], int(found[2]))
        port = self._transport.get_extra_info("sockname")[1]
        return answer.replace(f" {found[1]} {found[2]} typ host", f" 127.0.0.1 {port} typ host")

    async def spike(self, seconds: float) -> None:
        self._held = []
        await asyncio.sleep(seconds)
        held, self._held = self._held, None
        for one in held:
            self._send(*one)

    def _send(self, data: bytes, to: Address) -> None:
        assert self._transport
        self.passed += 1
        self._transport.sendto(data, to)


def without_addresses(offer: str) -> str:
    """An SDP offer as browsers post it: before any candidate was found."""
    return "".join(f"{line}\r\n" for line in offer.splitlines() if "candidate" not in line)


@asynccontextmanager
async def relaying() -> AsyncGenerator[Relay]:
    loop = asyncio.get_running_loop()
    transport, relay = await loop.create_datagram_endpoint(Relay, local_addr=("127.0.0.1", 0))
    try:
        yield relay
    finally:
        transport.close()
