"""After a rehearsal the first request of a kind costs what the next one does, counted in calls of Python functions."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

import pytest
from fastapi import FastAPI

from app.http.warm_up import PATHS, warm_up
from app.server import app_of
from app.service import Service
from tests.app.rig import script_spec

OTHERS = ("/health", "/docs", "/metrics", "/v1/models", "/v1/none", "/docs/files/swagger-ui-bundle.js")
MORE_CALLS = 1500
"""That one endpoint may make at first: a look at where it stands in its source, and its own state."""


@pytest.fixture
def app() -> FastAPI:
    return app_of(Service(script_spec()))


def calls_of(app: FastAPI, path: str) -> int:
    """How many functions a request for this path calls."""
    count = 0

    def counting(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    async def ask() -> None:
        sys.setprofile(counting)
        try:
            await app(scope(path), receive, send)
        finally:
            sys.setprofile(None)

    asyncio.run(ask())
    return count


def scope(path: str) -> dict[str, Any]:
    head = [(b"host", b"localhost")]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": head,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(message: Any) -> None:
    assert message.get("status", 0) != 500


@pytest.mark.parametrize("path", [*PATHS, *OTHERS])
def test_the_first_request_costs_what_the_next_one_does(path: str, app: FastAPI) -> None:
    warm_up(app)
    first, then = calls_of(app, path), calls_of(app, path)
    assert first <= then + MORE_CALLS


def test_without_a_rehearsal_it_costs_more(app: FastAPI) -> None:
    first, then = calls_of(app, "/livez"), calls_of(app, "/livez")
    assert first > then + 3 * MORE_CALLS
    assert calls_of(app, "/openapi.json") > 10 * MORE_CALLS


def test_a_server_with_keys_is_rehearsed_too(tmp_path: Any) -> None:
    from tests.app.rig import keys_file

    locked = app_of(Service(script_spec(keys_file=keys_file(tmp_path, "k" * 20), host="0.0.0.0")))
    warm_up(locked)
    assert calls_of(locked, "/livez") <= calls_of(locked, "/livez") + MORE_CALLS
    assert locked.openapi_schema is not None
