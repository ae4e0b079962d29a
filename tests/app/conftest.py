"""The app's fixtures: a server, a client, and what makes others."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest

from tests.app.local_decoder import LocalDecoder
from tests.app.rig import Client, LoudnessVad, Running, running, script_spec, talking
from tests.app.scripted import duplex_spec


@pytest.fixture(scope="session", autouse=True)
def decodes_here() -> Iterator[None]:
    """Starting a decoder process takes half a second of CPU time, and a thousand tests start a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.media.decoding.Decoder", LocalDecoder)
        yield


@pytest.fixture
async def server() -> AsyncGenerator[Running]:
    async with running(script_spec(), vad=LoudnessVad) as one:
        yield one


@pytest.fixture
async def duplex() -> AsyncGenerator[Running]:
    """A server whose model listens while it speaks."""
    async with running(duplex_spec(), vad=LoudnessVad) as one:
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
