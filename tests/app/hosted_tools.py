"""Fixtures of hosted tools: a real MCP server, and a server of ours whose operator names it.

A test's module imports the fixtures that it needs, and names them in its ``__all__``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.app import mcp_rig
from tests.app.mcp_rig import Library
from tests.app.rig import LoudnessVad, Running, running, script_spec


@pytest.fixture
async def library() -> AsyncGenerator[Library]:
    async with mcp_rig.library() as one:
        yield one


@pytest.fixture
async def server(library: Library) -> AsyncGenerator[Running]:
    async with serving(library.named()) as one:
        yield one


@asynccontextmanager
async def serving(named: list[dict[str, Any]], **limits: float) -> AsyncGenerator[Running]:
    """A server with these entries in ``server.mcp``, and these limits."""
    async with running(script_spec(mcp=named, limits=limits), vad=LoudnessVad) as one:
        yield one
