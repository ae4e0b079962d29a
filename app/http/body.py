"""Request bodies: limited in size and time, counted towards the memory limits, and parsed strictly.

``StrictRoute`` is the route class of all API routes with a body. JSON is decoded by ``strict_json``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import closing
from functools import partial
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.formparsers import MultiPartParser
from starlette.types import Message, Receive, Scope, Send

from app import strict_json
from app.access.auth import caller_of
from app.http_errors import HttpRefusal, refusal_of
from app.limits.held_size import held_size
from app.limits.memory_budget import MemoryFull, MemoryReservation
from app.limits.quotas import QuotaExceeded
from app.service import Service

Responses = dict[int | str, dict[str, Any]]
"""A route's responses, for OpenAPI."""

MAX_BODY_BYTES = 32 * 1024 * 1024
"""An image of 10 MiB and a recording of five minutes, both in base64, in one message."""

PIECE_BYTES = 16 * 1024
"""Bytes of a body that are processed at once. Other clients have their turn afterwards, since a form's parser may need
much time for few bytes.
"""

BODY_S = 120.0
"""Maximum seconds until a body is complete: the largest one at 2 Mbit/s. A client that sends very slowly holds its
socket no longer than this.
"""

MultiPartParser.spool_max_size = MAX_BODY_BYTES
"""Keep parts of a form in memory: Starlette would write parts above 1 MB to a file. Memory is reserved for them."""

_ROOM = "parley.room"
"""The key of the ASGI scope that holds the request's memory reservation."""


def room_of(request: Request) -> MemoryReservation:
    """Return the request's memory reservation, for its body and for the data decoded from it."""
    return request.scope[_ROOM]


class StrictRoute(APIRoute):
    """A route with at most ``max_bytes`` of body, and a memory reservation until the response has ended."""

    max_bytes = MAX_BODY_BYTES

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        with closing(MemoryReservation(service.memory, caller_of(scope), "requests")) as scope[_ROOM]:
            await super().handle(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(_Bounded(request, self.max_bytes))

        return strictly


class _Bounded(Request):
    """A request whose body is counted while it arrives."""

    def __init__(self, request: Request, max_bytes: int) -> None:
        super().__init__(request.scope, _timed(request.receive))
        self._untimed = request.receive
        self._max_bytes = max_bytes
        self._size = 0
        self._service = cast("Service", request.app.state.service)

    @property
    def receive(self) -> Receive:
        """Return a ``receive`` without the time limit, for waiting until the client disconnects."""
        return self._untimed

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the body in pieces. Raises HttpRefusal once it is too large.

        The Content-Length header is trusted only for refusing early.
        """
        length = self.headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20:
            self._check(int(length))
        loop_time = self._service.loop_time(caller_of(self.scope))
        async for piece in super().stream():
            self._check(self._size + len(piece))
            self._take(len(piece))
            self._size += len(piece)
            for at in range(0, len(piece), PIECE_BYTES):
                loop_time.begin()
                yield piece[at : at + PIECE_BYTES]
                loop_time.count()  # count the work of a form's parser on this piece
                await loop_time.turn()

    async def json(self) -> Any:
        decode = partial(_decoded, await self.body())
        try:
            found, size = await self._service.scheduler.read(decode, self._size)
        except strict_json.BadJson as error:
            raise json.JSONDecodeError(str(error), "", 0) from None
        self._take(size)
        return found

    def _take(self, size: int) -> None:
        """Reserve memory. Raises HttpRefusal, since FastAPI would report any other exception as an invalid body."""
        try:
            room_of(self).take(size)
        except (MemoryFull, QuotaExceeded) as full:
            raise refusal_of(full) from None

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            message = f"The body is larger than {self._max_bytes // 1024} kB."
            raise HttpRefusal(413, "request_too_large", message)


def _decoded(data: bytes) -> tuple[Any, int]:
    """Return the JSON value in a body, and the bytes that it takes in memory. Raises BadJson."""
    found = strict_json.decode(data)
    return found, held_size(found)


def _timed(receive: Receive) -> Receive:
    """Wrap ``receive`` so that it raises HttpRefusal after BODY_S seconds."""
    deadline = asyncio.get_running_loop().time() + BODY_S

    async def timed() -> Message:
        try:
            async with asyncio.timeout_at(deadline):
                return await receive()
        except TimeoutError:
            raise HttpRefusal(408, "request_timeout", f"The body did not arrive within {BODY_S:g} s.") from None

    return timed
