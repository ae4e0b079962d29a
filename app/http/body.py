"""Request bodies: bounded in size, in time and all together while they come, and parsed strictly.

``StrictRoute`` is the route class of every API route that takes a body. JSON is what ``strict_json`` takes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive

from app import strict_json
from app.http.trouble import HttpRefusal

Responses = dict[int | str, dict[str, Any]]
"""What a route answers, as OpenAPI has it."""

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A picture of 10 MiB and a recording of five minutes, both in base64, in one message."""

MAX_BODIES_BYTES = 256 * 1024 * 1024
"""Of all requests that are being read: eight of the largest at a time."""

BODY_S = 120.0
"""The longest that a body may take: the largest at 2 Mbit/s. A peer that drips holds its socket no longer."""


class Bodies:
    """The bytes of all bodies that are being read, on one server."""

    def __init__(self, limit: int = MAX_BODIES_BYTES) -> None:
        self.limit, self.held = limit, 0

    def take(self, size: int) -> None:
        """Raises HttpRefusal when there is no room."""
        if self.held + size > self.limit:
            raise HttpRefusal(503, "overloaded", "Too much is being sent to this server; try again soon.")
        self.held += size


class StrictRoute(APIRoute):
    """A route whose body has at most ``max_bytes``. ``app.state.bodies`` bounds those of all routes together."""

    max_bytes = MAX_BODY_BYTES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            bounded = _Bounded(request, self.max_bytes)
            try:
                return await handle(bounded)
            finally:
                bounded.let_go()

        return strictly


class _Bounded(Request):
    """A request whose body is counted as it comes."""

    def __init__(self, request: Request, max_bytes: int) -> None:
        super().__init__(request.scope, _timed(request.receive))
        self._untimed, self._max_bytes, self._size = request.receive, max_bytes, 0
        self._bodies: Bodies = request.app.state.bodies

    @property
    def receive(self) -> Receive:
        """For those who wait for the client to leave."""
        return self._untimed

    async def stream(self) -> AsyncGenerator[bytes]:
        """Raises HttpRefusal once there is more than may be; the header's own word is only good for refusing early."""
        length = self.headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20:
            self._check(int(length))
        async for piece in super().stream():
            self._check(self._size + len(piece))
            self._bodies.take(len(piece))
            self._size += len(piece)
            yield piece

    async def json(self) -> Any:
        try:
            return strict_json.decode(await self.body())
        except strict_json.BadJson as error:
            raise json.JSONDecodeError(str(error), "", 0) from None

    def let_go(self) -> None:
        """The body has been taken in, or refused. May be called twice."""
        self._bodies.held -= self._size
        self._size = 0

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            message = f"The body is larger than {self._max_bytes // 1024} kB."
            raise HttpRefusal(413, "request_too_large", message)


def _timed(receive: Receive) -> Receive:
    """The same, until the time for a body is over; then it raises HttpRefusal."""
    deadline = asyncio.get_running_loop().time() + BODY_S

    async def timed() -> Message:
        try:
            async with asyncio.timeout_at(deadline):
                return await receive()
        except TimeoutError:
            raise HttpRefusal(408, "request_timeout", f"The body did not come within {BODY_S:g} s.") from None

    return timed
