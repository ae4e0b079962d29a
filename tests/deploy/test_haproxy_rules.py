"""HAProxy itself with deploy/haproxy.cfg, before two servers that only say their names: which one is asked, and for how
long it may say nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.deploy.haproxy import CONFIG, SILENT, Fronts, free_port, listens, proxy, stand_in

pytestmark = pytest.mark.haproxy


@asynccontextmanager
async def behind(folder: Path, config: Path = CONFIG) -> AsyncGenerator[Fronts]:
    """The proxy before both."""
    one = Fronts({name: free_port() for name in ("a", "b", "proxy")}, folder / "admin.sock")
    async with AsyncExitStack() as stack:
        for name in ("a", "b"):
            await stack.enter_async_context(await stand_in(name, "127.0.0.1", one.ports[name]))
        one.processes["proxy"] = process = proxy(one, config)
        process.start()
        stack.push_async_callback(process.end)
        await listens(one.admin)
        yield one


async def test_telephones_are_one_servers_which_knows_what_comes_after_a_call(tmp_path: Path) -> None:
    paths = ("twilio", "twilio/stream", "twilio/next", "next/a-channel")
    async with behind(tmp_path) as one, httpx.AsyncClient(base_url=one.url()) as http:

        async def answering(path: str) -> set[str]:
            return {(await http.post(path)).text for _ in range(4)}

        assert await answering("/v1/models") == {"a", "b"}, "the control"
        assert {name for path in paths for name in await answering(f"/v1/telephone/{path}")} == {"a"}
        await one.tell("set server parley/a state maint")
        assert {name for path in paths for name in await answering(f"/v1/telephone/{path}")} == {"b"}


async def test_an_answer_may_take_an_hour_and_one_that_takes_longer_is_told_as_errors_are(tmp_path: Path) -> None:
    """An answer that is not streamed says nothing before its end."""
    text = CONFIG.read_text()
    assert text.count("timeout server 1h\n") == 1
    (tmp_path / "soon.cfg").write_text(text.replace("timeout server 1h\n", "timeout server 300ms\n"))
    async with behind(tmp_path, tmp_path / "soon.cfg") as one, httpx.AsyncClient(base_url=one.url()) as http:
        late = await http.post(SILENT)
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "server_late"
