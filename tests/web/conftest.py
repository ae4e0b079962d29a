"""The page's fixtures: a server with the scripted family, and browsers that look at it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.app.rig import LoudnessVad, Running, running, script_spec
from tests.conftest import REQUIRED
from tests.web.browser import MODULES, Page, browsing


@pytest.fixture(autouse=True)
def _modules(request: pytest.FixtureRequest) -> None:
    """Node alone is not enough: the page's build tools and the browser's driver are what `npm ci` brings."""
    if request.node.get_closest_marker("node") and not (MODULES / ".package-lock.json").is_file():
        missing = "web/node_modules is missing (cd web && npm ci)"
        pytest.fail(f"PARLEY_REQUIRE: {missing}") if "node" in REQUIRED else pytest.skip(missing)


@pytest.fixture
async def server() -> AsyncGenerator[Running]:
    async with running(script_spec(), vad=LoudnessVad) as one:
        yield one


Browse = Callable[..., AbstractAsyncContextManager[Page]]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    def one(**options: Any) -> AbstractAsyncContextManager[Page]:
        return browsing(tmp_path / "profile", **options)

    return one


@pytest.fixture
async def page(server: Running, browse: Browse) -> AsyncGenerator[Page]:
    """A page without a microphone that is ready."""
    async with browse() as one:
        await one.open(server.http)
        yield one
