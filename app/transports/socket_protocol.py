"""uvicorn's WebSocket protocol, with five ends that it leaves open.

Small messages leave at once: on a socket whose listener was bound by hand, asyncio leaves Nagle's algorithm on, and
the first packet of every answer would wait 40 ms for the peer's delayed acknowledgement. A peer that takes nothing any
more can be cut off (``parley.abort`` in the scope's extensions); one that sent a frame too large, or bad UTF-8, gets to
read the close code although it is still sending; a ping that is not answered frees the socket even when its buffer is
full; and a connection that was refused with a response is no error of ours. Knows no event.
"""

from __future__ import annotations

import socket
from asyncio.transports import BaseTransport
from typing import cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

LINGER_S = 3.0
"""How long a peer that is leaving may take to read what was sent to it, our close frame included."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection."""

    _broken = False

    def connection_made(self, transport: BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions = cast("dict[str, object]", self.scope.get("extensions"))
            extensions["parley.abort"] = {"call": self.transport.abort}

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # with a refusal; uvicorn would log a handshake that was forgotten

    def data_received(self, data: bytes) -> None:
        if not self._broken:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        """Closing with unread input would reset the connection, and the peer would lose our close frame."""
        close = self.conn.close_sent
        self._broken = self.close_sent = True
        code, reason = (close.code, close.reason) if close is not None else (1002, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self._cut_later()

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._cut_later()

    def eof_received(self) -> None:
        """The peer has finished; asyncio closes the transport once what is left has been sent, if it ever is."""
        self._cut_later()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_later()

    def _cut_later(self) -> None:
        """A peer that leaves without reading would keep the socket open for ever."""
        if self.close_timer is None:
            self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)
