"""The data channel of a call: sends texts one after another, with a limit on unread data."""

from __future__ import annotations

import asyncio
from typing import Any

from aiortc import RTCDataChannel
from aiortc.exceptions import InvalidStateError

from app.realtime.protocol.dialect import REALTIME, Dialect
from app.realtime.protocol.server_events import ErrorEvent
from app.refusal import ServerFault
from app.transports.disconnect import Disconnect

UNSENT_BYTES = 1 << 20
"""Maximum unsent bytes in the channel: a client on a slow line is a few events behind, not a megabyte."""


class DataChannel:
    """The client's data channel for text. Callers of ``send`` limit how long the client may read nothing."""

    def __init__(self, channel: RTCDataChannel, dialect: Dialect = REALTIME) -> None:
        self._channel = channel
        self._dialect = dialect
        self._taken = asyncio.Event()
        channel.bufferedAmountLowThreshold = UNSENT_BYTES // 2
        channel.on("bufferedamountlow", self._taken.set)

    async def send(self, text: str) -> None:
        """Send a text once there is room for it. Raises Disconnect if the channel is closed."""
        if self._channel.bufferedAmount > UNSENT_BYTES:
            await self._room()
        try:
            self._put(text)
        except InvalidStateError:
            raise Disconnect(1006, "the client vanished") from None

    async def emptied(self) -> None:
        """Wait until the client has received everything that was sent."""
        self._channel.bufferedAmountLowThreshold = 0
        if self._channel.bufferedAmount and self._channel.readyState == "open":
            await self._room()

    async def _room(self) -> None:
        self._taken.clear()
        await self._taken.wait()

    def _put(self, text: str) -> None:
        try:
            self._channel.send(text)
        except ValueError:  # the offer contains the client's maximum message size
            for other in self._dialect.encode(_too_long(len(text))):
                self._channel.send(other)


def _too_long(size: int) -> Any:
    message = f"An event of {size} characters exceeds the client's data channel: use a WebSocket."
    return ErrorEvent(ServerFault("event_too_large", message), None)
