"""uvicorn's WebSocket protocol, with additional handling of connections that end abnormally.

- A client that reads nothing can be aborted (``parley.abort`` in the scope's extensions).
- A client that sent a frame too large, or invalid UTF-8, can read the close code while it is still sending.
- A connection that was refused with a response is not logged as an error.
- The deadlines for closing are in the table of ``tcp_connections``.
- Frames are parsed a few at a time, at the client's allowed rate, including frames that complete no message
  (``intake``).
- A text of megabytes is sent in fragments, between which other clients have their turn.

Knows no event.
"""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from websockets.http11 import Request

from app.access.auth import PACE
from app.client_address import plain
from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.rate_limiter import RateLimiter
from app.transports.disconnect import TOO_MUCH
from app.transports.intake import Intake
from app.transports.outbox import FRAGMENT_CHARS
from app.transports.tcp_connections import DEADLINES_S, State, TcpConnection
from app.transports.uvicorn_compat import (
    ASGIReceiveEvent,
    ASGISendEvent,
    ClientDisconnected,
    WebSocketsSansIOProtocol,
)

SILENCE_S = 1.0
"""Seconds without input after which a client whose input can't be parsed counts as having read the close frame. Client
libraries report the reason only when the connection ends.
"""


class SocketProtocol(WebSocketsSansIOProtocol):
    """One connection. ``pace`` is its rate limiter; ``own`` maps the peer's address to the client's.

    The client must read each fragment of a long text within ``send_timeout_s``.
    """

    _broken = False

    def __init__(
        self,
        *args: Any,
        pace: RateLimiter,
        scheduler: FairScheduler,
        own: Callable[[str], str] = plain,
        send_timeout_s: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._send_timeout_s = send_timeout_s
        self._parsed = 0
        self._pongs = b""
        self._silence: asyncio.TimerHandle | None = None
        self._loop_time = LoopTimeBudget(scheduler, pace=pace)
        self._own = own
        self._pace = pace
        self._intake = Intake(self._parse, self._ready, self._resume_reading, self._cut_off, pace, self._loop_time)

    def connection_made(self, transport: BaseTransport) -> None:
        """Start the protocol. ``transport`` is the TcpConnection that carried HTTP until now."""
        self._connection = cast("TcpConnection", transport)
        super().connection_made(transport)
        self._loop_time.belong(self._own(self.client[0]) if self.client else "")

    def handle_connect(self, event: Request) -> None:
        if not _is_ascii(event):
            self._refuse("The headers of a WebSocket handshake must be ASCII.")
            return
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions = cast("dict[str, object]", self.scope.get("extensions"))
            extensions["parley.abort"] = {"call": self.transport.abort}
            extensions[PACE] = {"pace": self._pace, "loop_time": self._loop_time}

    async def send(self, message: ASGISendEvent) -> None:
        text = message.get("text") if message["type"] == "websocket.send" else None
        if text is not None and len(text) > FRAGMENT_CHARS:
            await self._send_long(text)
            return
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True  # with a refusal; otherwise uvicorn would log an incomplete handshake
        if message["type"] == "websocket.accept":
            self._connection.enter(State.OPEN)
        elif self.close_sent:
            self._connection.enter(State.CLOSING)

    async def _send_long(self, text: str) -> None:
        """Send a text in fragments. Raises ClientDisconnected, and TimeoutError for a client that reads nothing.

        If cancelled, it sends the rest of the message at once.
        """
        at = 0
        try:
            while at < len(text):
                async with asyncio.timeout(self._send_timeout_s):
                    await self.writable.wait()
                await self._loop_time.turn()
                if self.disconnected or self.close_sent:
                    raise ClientDisconnected
                self._send_fragment(text, at, at := at + FRAGMENT_CHARS)
                await asyncio.sleep(0)  # the work is counted here
        except asyncio.CancelledError:
            if 0 < at < len(text) and not (self.disconnected or self.close_sent):
                self._send_fragment(text, at, len(text))
            raise

    def _send_fragment(self, text: str, start: int, end: int) -> None:
        send = self.conn.send_continuation if start else self.conn.send_text
        send(text[start:end].encode(), fin=end >= len(text))
        self.transport.write(b"".join(self.conn.data_to_send()))

    def _refuse(self, why: str) -> None:
        """Answer an invalid handshake, which uvicorn would leave without a response."""
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(self.conn.reject(HTTPStatus.BAD_REQUEST, why).serialize())
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._broken:
            self._close_in_silence()
        else:
            self._intake.put(data)
            if self._intake.behind:
                self._pause_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        self._intake.go_on()
        return message

    def handle_events(self) -> None:
        self._parsed += len(self.conn.events)
        super().handle_events()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse(f"Invalid WebSocket handshake: {self.conn.handshake_exc.__cause__}.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._intake.close()
        if self._silence is not None:
            self._silence.cancel()
        self._connection.gone()
        super().connection_lost(exc)
        # Free unfinished frames and messages now, since this object may live until the garbage collector runs.
        self.frames = []
        self.conn.reader.buffer.clear()

    def handle_ping(self) -> None:
        """Store the pongs until they can be sent. A client that reads nothing needs only the latest (RFC 6455,
        5.5.3).
        """
        self._pongs = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self._send_pongs()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_pongs()

    def _send_pongs(self) -> None:
        pongs = self._pongs
        self._pongs = b""
        self.transport.write(pongs)

    def _parse(self, data: bytes) -> int:
        self._parsed = 0
        super().data_received(data)
        return self._parsed

    def _ready(self) -> bool:
        """Return whether the previous input was processed."""
        return self.close_sent or self.queue.empty()

    def _pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def _cut_off(self) -> None:
        self.conn.fail(TOO_MUCH, "message rate exceeded for a minute")
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Close without resetting the connection: with unread input, the client would lose our close frame."""
        close = self.conn.close_sent
        self._broken = self.close_sent = True
        self._intake.close()
        code, reason = (close.code, close.reason) if close is not None else (1002, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self._resume_reading()
        self.close_timer = self.loop.call_later(DEADLINES_S[State.CLOSING], self.transport.abort)
        self._close_in_silence()

    def _close_in_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self.loop.call_later(SILENCE_S, self.transport.close)

    def eof_received(self) -> None:
        """Close the connection, since asyncio closes the transport without notice."""
        self.transport.close()

    def keepalive_timeout(self) -> None:
        if self.read_paused:  # the pong may be in the unread input
            self.pong_timer = self.loop.call_later(cast("float", self.ping_timeout), self.keepalive_timeout)
        else:
            super().keepalive_timeout()


def _is_ascii(request: Request) -> bool:
    """Return whether the handshake's headers are ASCII, which the ``websockets`` library requires."""
    return all(value.isascii() for name, value in request.headers.raw_items() if name.lower().startswith("sec-"))
