"""What aiortc itself does not check of the datagrams that reach a call's port, from whomever they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SIZES = range(1, 1473)
"""Bytes. Of an empty datagram aiortc would look at the first one, and libsrtp's buffer has room for an Ethernet frame's
worth only: either would be the end of the call, and a stranger can send both."""


def take_plausible(transport: Any, heard: Callable[[], None]) -> None:
    """Let an RTCIceTransport receive only datagrams of a size that media, keys and events come in; tell of each."""
    receive = transport._recv

    async def received() -> bytes:
        while len(data := await receive()) not in SIZES:
            pass
        heard()
        return data

    transport._recv = received
