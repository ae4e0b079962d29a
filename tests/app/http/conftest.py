"""The official client, against a server with the scripted family."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from openai import AsyncOpenAI

from tests.app.rig import Running


@pytest.fixture
async def openai(server: Running) -> AsyncGenerator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="sk-none", base_url=f"{server.http}/v1", max_retries=0) as client:
        yield client
