"""The page's fixtures: for each module one server with the scripted family, and one browser that looks at it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.app.rig import LoudnessVad, Running, running, script_spec
from tests.conftest import REQUIRED
from tests.web.browser import MODULES, Chromium, Page, browsing


@pytest.fixture(scope="module", autouse=True)
def _modules(request: pytest.FixtureRequest) -> None:
    """Node alone is not enough: the page's build tools and the browser's driver are what `npm ci` brings."""
    if request.node.get_closest_marker("node") and not (MODULES / ".package-lock.json").is_file():
        missing = "web/node_modules is missing (cd web && npm ci)"
        pytest.fail(f"PARLEY_REQUIRE: {missing}") if "node" in REQUIRED else pytest.skip(missing)


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
