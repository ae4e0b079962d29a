"""Limits on a client's data channel traffic: on all work that aiortc's SCTP does for one datagram.

Clients that follow the protocol never reach them. Source: RFC 9260 (SCTP), RFC 8831 (data channels).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from app.transports.webrtc import aiortc_compat
from app.transports.webrtc.reassembly import QueuedBytes, Reassembly, TooLarge

MAX_CHANNELS = 16
"""Maximum data channels of one connection: one carries the events, and pages may open others."""

AHEAD_FRAGMENTS = 1024
"""Maximum distance of a fragment from a missing one: aiortc's window has room for 950 full ones."""

MAX_DUPLICATES = 64
"""Maximum duplicate fragments reported at a time."""


def bound_messages(sctp: Any, refuse: Callable[[str], None]) -> None:
    """Limit the message size and channels of an RTCSctpTransport. ``refuse`` receives the reason if a client exceeds
    them.
    """
    _Bounds(sctp, refuse)


class _Bounds:
    """Replacements for some methods of one RTCSctpTransport."""

    def __init__(self, transport: Any, refuse: Callable[[str], None]) -> None:
        self._sctp = sctp = aiortc_compat.inside(transport)
        self._refuse = refuse
        self._waiting = QueuedBytes()
        self._refused = False
        self._handle = sctp.handle_data
        self._receive_data = sctp.receive_data_chunk
        self._receive_sack = sctp.receive_sack_chunk
        self._receive_message = sctp.data_channel_receive
        sctp.handle_data = self.handle
        sctp.receive_data_chunk = self.receive_data
        sctp.receive_sack_chunk = self.receive_sack
        sctp.data_channel_receive = self.receive_message
        self._send = sctp.send_chunk
        sctp.send_chunk = self.send
        sctp.get_inbound_stream = self.stream
        sctp.mark_received = self.mark_received

    async def handle(self, data: bytes) -> None:
        """Handle a datagram, unless a limit was exceeded before."""
        try:
            if not self._refused:
                await self._handle(data)
        except TooLarge as error:
            self._refused = True
            self._refuse(str(error))

    async def send(self, chunk: Any) -> None:
        """Send a chunk. After the end of the connection it is dropped, because aiortc's timers would fail."""
        with suppress(ConnectionError):
            await self._send(chunk)

    async def receive_data(self, chunk: Any) -> None:
        """Handle a fragment, or treat it as lost if there is no room."""
        last = self._sctp.last_received_tsn
        if last is not None and not AHEAD_FRAGMENTS < (chunk.tsn - last & 0xFFFFFFFF) < 0x80000000:
            await self._receive_data(chunk)

    async def receive_sack(self, chunk: Any) -> None:
        """Handle the client's acknowledgement, unless it acknowledges more than was sent."""
        sctp = self._sctp
        sent = sctp.local_tsn - 1 - chunk.cumulative_tsn & 0xFFFFFFFF
        reported = sum(max(0, last - first + 1) for first, last in chunk.gaps)
        if sent < 0x80000000 and reported <= sent and all(last <= sent for _, last in chunk.gaps):
            await self._receive_sack(chunk)

    async def receive_message(self, stream_id: int, kind: int, data: bytes) -> None:
        """Handle a complete message, unless its channel is one too many."""
        channels = self._sctp.data_channels
        if stream_id in channels or len(channels) < MAX_CHANNELS:
            await self._receive_message(stream_id, kind, data)

    def stream(self, stream_id: int) -> Reassembly:
        """Return the reassembly of a stream. Raises TooLarge if there are more streams than channels allowed."""
        streams = self._sctp.inbound_streams
        if stream_id not in streams:
            if len(streams) >= MAX_CHANNELS:
                raise TooLarge(f"More than {MAX_CHANNELS} data channels are open.")
            streams[stream_id] = Reassembly(self._waiting)
        return streams[stream_id]

    def mark_received(self, tsn: int) -> bool:
        """Record a fragment's number. Returns whether it was received before.

        aiortc would sort all early fragments for each one.
        """
        sctp = self._sctp
        behind = sctp.last_received_tsn - tsn & 0xFFFFFFFF < 0x80000000
        if behind or tsn in sctp.sack_misordered:
            if len(sctp.sack_duplicates) < MAX_DUPLICATES:
                sctp.sack_duplicates.append(tsn)
            return True
        sctp.sack_misordered.add(tsn)
        while (following := sctp.last_received_tsn + 1 & 0xFFFFFFFF) in sctp.sack_misordered:
            sctp.sack_misordered.remove(following)
            sctp.last_received_tsn = following
        return False
