"""Warm-up: request each kind of page once before the server accepts clients, because first requests are slow.

Libraries build routes, import modules and generate the API description on first use, 0.2 s in all. Without a warm-up,
that would block the event loop during somebody's answer. Knows only routes that need no key.
"""

from __future__ import annotations

import asyncio

import httpx2
from fastapi import FastAPI

from app.access.auth import DOCS

PATHS = ("/livez", "/", f"{DOCS}/files/swagger-ui.css", "/openapi.json")
"""A route, a file of each folder, and the API description, which prepares all routes."""


def warm_up(app: FastAPI) -> None:
    """Request each of PATHS. Call it while no event loop runs."""

    async def ask_for_all() -> None:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
            for path in PATHS:
                await http.get(path)

    asyncio.run(ask_for_all())
