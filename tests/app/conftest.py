"""The app's fixtures: a server, a client, and what makes others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from tests.app.rig import Client, LoudnessVad, Running, running, script_spec, talking


@pytest.fixture
async def server() -> AsyncGenerator[Running]:
    async with running(script_spec(), vad=LoudnessVad) as one:
        yield one


@pytest.fixture
async def client(server: Running) -> AsyncGenerator[Client]:
    async with talking(server) as one:
        yield one


Serving = Callable[..., AbstractAsyncContextManager[Running]]
Talking = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def serve_with() -> Serving:
    """A server whose ``server:`` section has the given entries."""
    return lambda **section: running(script_spec(**section), vad=LoudnessVad)


@pytest.fixture
def talk() -> Talking:
    return talking
