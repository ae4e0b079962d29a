"""The page behind a real proxy that does not pass on what it must: it loads, and names the header that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.rig import Running
from tests.app.transports.reverse_proxies import nginx
from tests.web.browser import Chromium

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.nginx, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("", "must forward the Host header"),
        ("proxy_set_header Host $http_host;", "A proxy in front of it must pass the headers Upgrade and Connection on"),
    ],
)
async def test_the_header_is_named(
    more: str, sentence: str, server: Running, browser: Chromium, tmp_path: Path
) -> None:
    async with nginx(tmp_path, server.port, more) as port, browser.page() as page:
        await page.open(f"http://127.0.0.1:{port}")
        await page.ask("say: one")
        await page.shows("#notice", sentence)
