"""What the page's camera sees reaches the engine with the spoken turn, over either line."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from engine import Engine, ImagePart, Request
from tests.app.rig import Running
from tests.web.browser import Chromium

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


def pictures(request: Request) -> list[Any]:
    return [part.pixels for part in request.messages[-1].parts if isinstance(part, ImagePart)]


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
async def test_a_spoken_turn_shows_the_engine_the_newest_pictures(
    transport: str, server: Running, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []
    open_request = Engine.open

    def noted(engine: Engine, request: Request, inputs: Any = None) -> Any:
        asked.append(request)
        return open_request(engine, request, inputs)

    monkeypatch.setattr(Engine, "open", noted)
    async with browser.page() as page:
        await page.open(server.http, transport=transport)
        await page.start()
        await page.do("click", "#camera")
        await page.until("document.querySelector('#preview video')?.videoWidth > 0")
        await asyncio.sleep(2.5)
        await page.value("speak(1.0)")
        await page.shows("#captions .answer", "I heard")
        seen = pictures(asked[-1])
        assert len(seen) == 3
        assert all(picture.shape == (480, 640, 3) or transport == "webrtc" for picture in seen)
        assert not any(np.array_equal(one, other) for one, other in itertools.pairwise(seen))  # it moves
        sent = await page.wire("parley.camera.frame")
        assert bool(sent) == (transport == "websocket")
        assert all(after["at"] - before["at"] > 900 for before, after in itertools.pairwise(sent))
        item = next(one["item"] for one in await page.wire("conversation.item.added") if one["item"]["role"] == "user")
        assert [part["type"] for part in item["content"]] == ["input_image"] * 3 + ["input_audio"]
        assert await page.wire("conversation.item.create") == []
        assert await page.wire("error") == []
        await page.do("click", "#end")
    await server.empty()
