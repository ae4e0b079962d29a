"""Request bodies, bounded before they are read and parsed strictly.

``StrictRoute`` is the route class of every API route that takes a body. JSON is RFC 8259: no NaN, no lone surrogates,
no nesting that would exhaust the stack.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.http.trouble import HttpRefusal

Responses = dict[int | str, dict[str, Any]]
"""What a route answers, as OpenAPI has it."""

MAX_BODY_BYTES = 32 * 1024 * 1024
"""A picture of 10 MiB and a recording of five minutes, both in base64, in one message."""


class StrictRoute(APIRoute):
    """A route whose body has at most ``max_bytes``."""

    max_bytes = MAX_BODY_BYTES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            bounded = _Bounded(request.scope, request.receive)
            bounded.max_bytes = self.max_bytes
            return await handle(bounded)

        return strictly


class _Bounded(Request):
    max_bytes = MAX_BODY_BYTES

    async def stream(self) -> AsyncGenerator[bytes]:
        """Raises HttpRefusal once there is more than may be; the header's own word is only good for refusing early."""
        length = self.headers.get("content-length", "0")
        size = int(length) if length.isdecimal() and len(length) < 20 else 0
        self._check(size)
        size = 0
        async for piece in super().stream():
            size += len(piece)
            self._check(size)
            yield piece

    async def json(self) -> Any:
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise json.JSONDecodeError(what, "", 0) from None

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            message = f"The body is larger than {self.max_bytes // 1024} kB."
            raise HttpRefusal(413, "request_too_large", message)
