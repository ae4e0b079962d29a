"""Responses that are written while they are produced, and work that ends when the client disconnects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.http_errors import ERRORS, body_of, refusal_of
from app.telemetry import log

T = TypeVar("T")
EVENTS = "text/event-stream"
Write = Callable[[bytes], Awaitable[None]]

SLOW_S = 30.0
"""Seconds without reading after which a client counts as gone. A player that keeps pace reads every second."""
QUIET_S = 15.0
"""Seconds of silence after which an event stream gets a comment, which clients ignore, so that no proxy closes it.

Source: WHATWG HTML, Server-sent events, Authoring notes: "every 15 seconds or so".
"""
COMMENT = b": keep-alive\n\n"


def server_sent_event(event: Mapping[str, Any], name: str | None = None) -> bytes:
    """Encode a server-sent event with JSON data, and with an ``event:`` line if it has a name."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + orjson.dumps(event) + b"\n\n"


class ClientGone(Exception):
    """The client has disconnected."""


async def while_there(receive: Receive, work: Coroutine[Any, Any, T], *beside: Coroutine[Any, Any, None]) -> T:
    """Return the result of ``work``. If the client disconnects first, cancel ``work`` and raise ClientGone.

    The coroutines in ``beside`` run in parallel and end with ``work``. The request's body must have been read. Errors
    of ``work`` are raised unchanged.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(one, name="http:watch") for one in (_until_gone(receive), *beside)]
            result = await work
            for watch in watches:
                watch.cancel()
    except BaseExceptionGroup as group:
        gone = [error for error in group.exceptions if isinstance(error, ClientGone)]
        raise (gone or group.exceptions)[0] from None
    return result


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone("the client disconnected")


class Live(Response):
    """A response whose body ``produce`` writes piece by piece, as fast as the client reads.

    Before the first piece, an error of ``ERRORS`` becomes an ordinary error response. After it, an event stream ends
    with an error event. Any other body is cut off, so that no client takes a part for the whole. Comments keep an idle
    event stream open.
    """

    def __init__(
        self,
        produce: Callable[[Write], Coroutine[Any, Any, object]],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})
        self._produce = produce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(send, self)
        beside = (body.comment(),) if self.media_type == EVENTS else ()
        try:
            await while_there(receive, self._work(body), *beside)
        except ClientGone as gone:
            log("http.left", path=scope["path"], reason=str(gone))
            await _cut(scope, receive)
            return
        except ERRORS as error:
            if not body.begun:
                raise
            log("http.broken", path=scope["path"], error=type(error).__name__)
            return  # without the last piece, so that the server cuts the connection
        await body.end()

    async def _work(self, body: _Body) -> None:
        try:
            await self._produce(body.write)
        except ERRORS as error:
            if not body.begun or self.media_type != EVENTS:
                raise
            await body.write(server_sent_event({"type": "error", **body_of(refusal_of(error))}))


async def _cut(scope: Scope, receive: Receive) -> None:
    """Abort the connection now. A plain close would wait for the client to read the rest."""
    abort = scope.get("extensions", {}).get("parley.abort")
    if abort is not None:
        abort["call"]()
        while (await receive())["type"] != "http.disconnect":
            pass


class _Body:
    """The body of a response. The headers are sent with the first piece or comment."""

    def __init__(self, send: Send, response: Response) -> None:
        self.begun = False
        self._send = send
        self._response = response
        self._turn = asyncio.Lock()
        self._sent_s = time.monotonic()

    async def write(self, piece: bytes) -> None:
        """Send a piece. Raises ClientGone if the client has read nothing for SLOW_S."""
        try:
            async with asyncio.timeout(SLOW_S), self._turn:
                await self._begin()
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            raise ClientGone(f"the client has read nothing for {SLOW_S:g} s") from None
        self._sent_s = time.monotonic()

    async def comment(self) -> None:
        """Send a comment whenever nothing was sent for QUIET_S."""
        while True:
            left_s = self._sent_s + QUIET_S - time.monotonic()
            await (asyncio.sleep(left_s) if left_s > 0 else self.write(COMMENT))

    async def end(self) -> None:
        await self._begin()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> None:
        if not self.begun:
            head = {"status": self._response.status_code, "headers": self._response.raw_headers}
            await self._send({"type": "http.response.start", **head})
            self.begun = True
