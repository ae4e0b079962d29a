"""Servers with the scripted family, and the official client."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.app.rig import LoudnessVad, Running, running, script_spec


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncGenerator[Running]:
    """One server for the tests of a module that leave it as they found it."""
    async with running(script_spec(), vad=LoudnessVad) as one:
        yield one


@pytest.fixture
async def openai(server: Running) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="sk-none", base_url=f"{server.http}/v1", max_retries=0) as client:
        yield client
