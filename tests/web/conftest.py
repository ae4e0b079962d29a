"""The page's fixtures: for each module one server with the scripted family, and one browser that looks at it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest_asyncio

from tests.app.rig import LoudnessVad, Running, running, script_spec
from tests.web.browser import Chromium, Page, browsing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[Running]:
    async with running(script_spec(), vad=LoudnessVad) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Chromium]:
    async with browsing() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def page(server: Running, browser: Chromium) -> AsyncGenerator[Page]:
    """A page that is loaded."""
    async with browser.page() as one:
        await one.open(server.http)
        yield one
