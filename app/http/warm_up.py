"""A server's first requests, made by itself before anybody is served: the first of a kind costs far more than others.

Libraries put off what they need until then (routes are built, modules imported, the API's description made: 0.2 s in
all), and the event loop would do it in the middle of somebody's answer. Knows no route but those that need no key.
"""

from __future__ import annotations

import asyncio

import httpx2
from fastapi import FastAPI

from app.access.auth import DOCS

PATHS = ("/livez", "/", f"{DOCS}/files/swagger-ui.css", "/openapi.json")
"""A route, a file of each folder, and the description, of which all routes are made ready."""


def warm_up(app: FastAPI) -> None:
    """Ask for each of PATHS, while no event loop runs and no client is there."""

    async def ask_for_all() -> None:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
            for path in PATHS:
                await http.get(path)

    asyncio.run(ask_for_all())
