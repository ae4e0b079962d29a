"""uvicorn's HTTP protocol with a deadline for every state of a connection (table in ``tcp_connections``).

Responses are sent in pieces, each once the client has read most of the previous ones, so a client that reads is told
from one that does not, however large the response is. The application can also abort a connection (``parley.abort`` in
the scope's extensions).

Requests are parsed in pieces, limited by the client's rate (``intake``). Their work counts towards the connection's
share of the event loop's time, which the next piece waits for.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, cast

import h11
from h11._receivebuffer import ReceiveBuffer
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
AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r\n[ \t]")
"""A line that ends with LF alone, or that continues the one before: other parsers read one header where h11 reads two,
or two where it reads one. That is how requests are smuggled through a proxy (RFC 9112, sections 2.2 and 5.2)."""


class HttpProtocol(H11Protocol):
    """One connection until it is upgraded. ``pace`` is its rate limiter; ``own`` maps the peer's address to the
    client's.
    """

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
        self.timeout_keep_alive = math.ceil(DEADLINES_S[State.IDLE])  # uvicorn has its own timer for this state
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
        transport.set_write_buffer_limits(high=PIECE_BYTES)  # with TLS the default is 512 kB
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
        """Close the connection, since asyncio closes the transport without notice."""
        self._connection.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._intake.close()
        self._connection.gone()
        super().connection_lost(exc)

    def _parse(self, data: bytes) -> int:
        """Parse a piece. Returns how many requests and chunks started since the last one."""
        super().data_received(data)
        self._watch()
        begun = self._parser.begun
        self._parser.begun = 0
        return begun

    def _ready(self) -> bool:
        """Return whether the application has read the previous input."""
        return not (self.flow.read_paused or self._upgraded or self.transport.is_closing())

    def _resume_reading(self) -> None:
        self.transport.resume_reading()

    def _piece_bytes(self) -> int:
        """Return how much to parse at once. A body of known length needs no parsing, so its pieces are large."""
        body = self.conn.their_state is h11.SEND_BODY and not self._parser.chunked
        return PIECE_BYTES if body else intake.PIECE_BYTES

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            extensions = cast("dict[str, object]", self.scope.setdefault("extensions", {}))
            extensions["parley.abort"] = {"call": self.transport.abort}
            extensions[PACE] = {"pace": self._pace}

    def send_400_response(self, msg: str) -> None:
        """Answer that the input is not HTTP, and end the connection and the request whose body it should have been."""
        if self.cycle is not None:  # pyright: ignore[reportUnnecessaryComparison] - uvicorn's word for: no request yet
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # a response has already started
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._upgraded = True
        self.transport.resume_reading()  # the WebSocket protocol reads from now on
        self._connection.enter(State.UPGRADE)
        super().handle_websocket_upgrade(event)
        self._intake.close()  # this protocol is not notified when the connection is lost

    def _watch(self) -> None:
        if not self._upgraded:
            self._connection.enter(self._state())

    def _state(self) -> State:
        """Return the connection's state, according to the parser and the transport."""
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
    """h11's parser, which refuses requests that another parser could read differently.

    ``begun`` counts the requests and chunks that started.
    """

    begun, chunked = 0, False

    def __init__(self, our_role: type[h11.SERVER]) -> None:
        super().__init__(our_role)
        self._receive_buffer = _Lines()

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            # One of h11's frames holds the error, which holds the frame: a reference cycle that includes this
            # connection.
            raise error.with_traceback(None) from None
        if isinstance(event, h11.Request):
            self.begun += 1
            names = {name for name, _ in event.headers}
            self.chunked = b"transfer-encoding" in names
            if self.chunked and b"content-length" in names:  # RFC 9112, section 6.1
                raise h11.RemoteProtocolError("the length of the body is stated in two ways")
        elif isinstance(event, h11.Data):
            self.begun += event.chunk_start
        return event


class _Lines(ReceiveBuffer):
    """h11's input, which refuses ambiguous lines in the head of a request and in the trailers of its body."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        begin = self._multiple_lines_search
        end = 0 if self._data.startswith(b"\r\n") else self._data.find(b"\r\n\r\n", begin)
        if AMBIGUOUS.search(self._data, begin, len(self._data) if end < 0 else end + 2):
            raise h11.LocalProtocolError("a line does not end with CRLF")
        return super().maybe_extract_lines()


class _Flow(FlowControl):
    """uvicorn's flow control for a parser behind an intake: when the application reads more, the intake continues
    first.
    """

    def __init__(self, transport: asyncio.Transport, intake: Intake) -> None:
        super().__init__(transport)
        self._intake = intake

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            asyncio.get_running_loop().call_soon(self._intake.go_on)  # not within the parser's current call


def counted(app: ASGIApp, loop_time: LoopTimeBudget) -> ASGIApp:
    """Return the application with its work counted: each request runs in its client's turn.

    More than twenty requests fit into one piece. From sixty clients that send such pieces, that is a second of work.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await loop_time.turn()
        await metered(cast("Coroutine[Any, Any, None]", app(scope, receive, send)), loop_time)

    return run


def in_pieces(app: ASGIApp, loop_time: LoopTimeBudget) -> ASGIApp:
    """Return the application with its responses split into small pieces, so that others have their turn in between."""

    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_pieces(message: Message) -> None:
            body = memoryview(message.get("body", b""))  # slicing costs nothing
            loop_time.sent(len(body))
            if len(body) <= PIECE_BYTES:  # or there is no body: the headers
                await send(message)
                return
            while len(body) > PIECE_BYTES:
                await send({**message, "body": body[:PIECE_BYTES], "more_body": True})
                body = body[PIECE_BYTES:]
                await loop_time.pause()
            await send({**message, "body": body})

        await app(scope, receive, send_pieces)

    return cut
