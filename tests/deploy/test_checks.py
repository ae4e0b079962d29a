"""The checks of `make containers`: each goes red where a deployment lacks what it asks for."""

from __future__ import annotations

import asyncio

import pytest

from scripts.containers import checks
from scripts.containers.machine import Failed
from tests.app.rig import running, script_spec


@pytest.mark.parametrize("path", checks.HIDDEN)
async def test_a_page_that_no_proxy_hides_is_found(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Parley had no such page, its own 404 would pass for the proxy's."""
    monkeypatch.setattr(checks, "HIDDEN", (path,))
    async with running(script_spec()) as server:
        with pytest.raises(Failed, match=f"{path} is open to everyone"):
            await asyncio.to_thread(list, checks.check_hidden(server.http))
        monkeypatch.setattr(checks, "HIDDEN", ("/admin/no-such-page",))
        assert await asyncio.to_thread(list, checks.check_hidden(server.http)), "the control"
