"""A server's first requests, made by itself before anybody is served: the first of a kind costs far more than others.

Libraries put off what they need until then (routes are built, modules imported, the API's description made: 0.2 s in
all), and the event loop would do it in the middle of somebody's answer. Knows no route but those that need no key.
"""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from starlette.types import Message, Scope

from app.auth import DOCS

PATHS = ("/livez", "/", f"{DOCS}/files/swagger-ui.css", "/openapi.json")
"""A route, a file of each folder, and the description, of which all routes are made ready."""


def rehearse(app: FastAPI) -> None:
    """Ask for each of PATHS, while no event loop runs and no client is there."""

    async def ask_for_all() -> None:
        for path in PATHS:
            await app(_scope(path), _no_body, _unsent)

    asyncio.run(ask_for_all())


def _scope(path: str) -> Scope:
    """Return what a server makes of a request from this machine (ASGI 3.0, HTTP)."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "state": {},
    }


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unsent(message: Message) -> None:
    pass
