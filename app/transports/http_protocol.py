"""uvicorn's HTTP protocol, where every state of a connection has its deadline (``connections`` has the table).

Answers leave in pieces, each once its peer has taken most of those before it: so a peer that reads is told from one
that does not, however large the answer is. A peer that takes nothing any more can be cut off by the application too
(``parley.abort`` in the scope's extensions).

Requests are parsed a piece at a time and at the pace that a client may have (``intake``); what is done for them counts
as their connection's part of the event loop's time, which the next piece waits for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.auth import PACE
from app.client_address import plain
from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget, metered
from app.limits.rate_limiter import RateLimiter
from app.transports import intake
from app.transports.intake import Intake
from app.transports.tcp_connections import DEADLINES_S, State, TcpConnection
from app.transports.uvicorn_compat import FlowControl, H11Protocol

PIECE_BYTES = 64 * 1024


class HttpProtocol(H11Protocol):
    """One connection, until it is upgraded. ``pace`` is its client's; ``own`` makes its address of the peer's."""

    def __init__(
        self,
        *args: Any,
        connection: TcpConnection,
        pace: RateLimiter,
        shared: FairScheduler,
        own: Callable[[str], str] = plain,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = math.ceil(DEADLINES_S[State.IDLE])  # uvicorn has a timer of its own for this state
        self._connection = connection
        self._upgraded = False
        self._own = own
        self._loop_time = LoopTimeBudget(shared, pace=pace)
        self._pace = pace
        self._parser = self.conn = _Parser(h11.SERVER)
        self._intake = Intake(
            self._parse, self._ready, self._resume_reading, connection.close, pace, self._loop_time, self._piece_bytes
        )
        self.app = cast("Any", counted(in_pieces(cast("ASGIApp", self.app), self._loop_time), self._loop_time))

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        transport.set_write_buffer_limits(high=PIECE_BYTES)  # over TLS it would be 512 kB
        self._connection.carry(transport)
        super().connection_made(cast("asyncio.Transport", self._connection))
        self._loop_time.belong(self._own(self.client[0]) if self.client else "")
        self.flow = _Flow(transport, self._intake)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._intake.put(data)
        if self._intake.behind and not self.transport.is_closing():
            self.transport.pause_reading()
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
        self._intake.close()
        self._connection.gone()
        super().connection_lost(exc)

    def _parse(self, data: bytes) -> int:
        """Count the requests and chunks that were begun since the last piece: some of them after it, one by one."""
        super().data_received(data)
        self._watch()
        begun = self._parser.begun
        self._parser.begun = 0
        return begun

    def _ready(self) -> bool:
        """Whether the application has taken what came before."""
        return not (self.flow.read_paused or self._upgraded or self.transport.is_closing())

    def _resume_reading(self) -> None:
        self.transport.resume_reading()

    def _piece_bytes(self) -> int:
        """Nothing is to be done for the bytes of a body of a known length: they are handed on."""
        body = self.conn.their_state is h11.SEND_BODY and not self._parser.chunked
        return PIECE_BYTES if body else intake.PIECE_BYTES

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
            extensions["parley.abort"] = {"call": self.transport.abort}
            extensions[PACE] = {"pace": self._pace}

    def send_400_response(self, msg: str) -> None:
        """Answer that what came is no HTTP: the end of this connection, and of the request on it whose body it was to
        be."""
        if self.cycle is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # in the middle of an answer
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        self.transport.resume_reading()  # it is the WebSocket's from now on
        self._connection.enter(State.UPGRADE)
        super().handle_websocket_upgrade(event)
        self._intake.close()  # the end of this protocol, which is not told when the connection is lost

    def _watch(self) -> None:
        if not self._upgraded:
            self._connection.enter(self._state())

    def _state(self) -> State:
        """Return the connection's state, as the parser and the transport show it."""
        answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        if self.transport.is_closing():
            return State.CLOSING
        if self.flow.write_paused:
            return State.READING
        if self.conn.their_state is h11.SEND_BODY:
            return State.REST if answered else State.BODY
        if not answered:
            return State.ANSWER
        begun = bool(self.conn.trailing_data[0]) or self._intake.behind
        return State.HEAD if begun or self.scope is None else State.IDLE  # pyright: ignore[reportUnnecessaryComparison]


class _Parser(h11.Connection):
    """``begun`` counts the requests and chunks whose beginning was parsed."""

    begun, chunked = 0, False

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            # One of h11's frames holds the error that holds the frame, and so this connection, for the collector.
            raise error.with_traceback(None) from None
        if isinstance(event, h11.Request):
            self.begun += 1
            self.chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.Data):
            self.begun += event.chunk_start
        return event


class _Flow(FlowControl):
    """uvicorn's, for a parser that is fed by an intake: when the application takes more, the intake goes on first."""

    def __init__(self, transport: asyncio.Transport, intake: Intake) -> None:
        super().__init__(transport)
        self._intake = intake

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            asyncio.get_running_loop().call_soon(self._intake.go_on)  # not within what the parser does now


def counted(app: ASGIApp, loop_time: LoopTimeBudget) -> ASGIApp:
    """The same application, whose work is counted. A request waits for its client's turn: more than twenty fit into one
    piece, and of sixty clients who send such pieces that is a second's work."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await loop_time.turn()
        await metered(cast("Coroutine[Any, Any, None]", app(scope, receive, send)), loop_time)

    return run


def in_pieces(app: ASGIApp, loop_time: LoopTimeBudget) -> ASGIApp:
    """The same application, no piece of whose answers is larger than may wait for its peer; others come in between."""

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = memoryview(message.get("body", b""))  # of which slices cost nothing
            if len(body) <= PIECE_BYTES:  # or none: it is the head
                await send(message)
                return
            while len(body) > PIECE_BYTES:
                await send({**message, "body": body[:PIECE_BYTES], "more_body": True})
                body = body[PIECE_BYTES:]
                await loop_time.pause()
            await send({**message, "body": body})

        await app(scope, receive, send_pieces)

    return cut
