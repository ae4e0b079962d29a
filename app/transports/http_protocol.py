"""uvicorn's HTTP protocol, where every state of a connection has its deadline (``connections`` has the table).

Answers leave in pieces, each once its peer has taken most of those before it: so a peer that reads is told from one
that does not, however large the answer is. A peer that takes nothing any more can be cut off by the application too
(``parley.abort`` in the scope's extensions).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.transports.connections import Connection, State

PIECE_BYTES = 64 * 1024


class HttpProtocol(H11Protocol):
    """One connection, until it is upgraded."""

    def __init__(self, *args: Any, connection: Connection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connection, self._upgraded = connection, False
        self.app = cast("Any", in_pieces(cast("ASGIApp", self.app)))

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        transport.set_write_buffer_limits(high=PIECE_BYTES)  # over TLS it would be 512 kB
        self._connection.carry(transport)
        super().connection_made(cast("asyncio.Transport", self._connection))
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()
        if self._connection.state is State.BODY:
            self._connection.said_something()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def eof_received(self) -> None:
        """The peer has finished, and asyncio closes the transport behind our back."""
        self._connection.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.gone()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
            extensions["parley.abort"] = {"call": self.transport.abort}

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP: the end of this connection, and of the request on it whose body it was to be."""
        if self.cycle is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # in the middle of an answer
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        self._connection.enter(State.UPGRADE)
        super().handle_websocket_upgrade(event)

    def _watch(self) -> None:
        if not self._upgraded:
            self._connection.enter(self._state())

    def _state(self) -> State:
        """What the parser and the transport tell of the connection."""
        answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        if self.transport.is_closing():
            return State.CLOSING
        if self.flow.write_paused:
            return State.READING
        if self.conn.their_state is h11.SEND_BODY:
            return State.REST if answered else State.BODY
        if not answered:
            return State.ANSWER
        begun = bool(self.conn.trailing_data[0])
        return State.HEAD if begun or self.scope is None else State.IDLE  # pyright: ignore[reportUnnecessaryComparison]


def in_pieces(app: ASGIApp) -> ASGIApp:
    """The same application, no piece of whose answers is larger than may wait for its peer."""

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = memoryview(message.get("body", b""))  # of which slices cost nothing
            if len(body) <= PIECE_BYTES:  # or none: it is the head
                await send(message)
                return
            while len(body) > PIECE_BYTES:
                await send({**message, "body": body[:PIECE_BYTES], "more_body": True})
                body = body[PIECE_BYTES:]
            await send({**message, "body": body})

        await app(scope, receive, send_pieces)

    return cut
