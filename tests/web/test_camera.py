"""What the page's camera sees reaches the engine with the spoken turn, over either line."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest

from app.realtime.input import camera_buffer
from app.realtime.protocol.client_events import CameraFrame
from engine import PICTURES, Engine, Request, VideoFrame
from engine.chunk import Chunk
from tests.app.rig import TIMEOUT_S, Running, eventually
from tests.web.browser import Chromium

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.parametrize("transport", ["websocket", "webrtc"])
async def test_a_spoken_turn_shows_the_engine_the_newest_pictures(
    transport: str, server: Running, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Any]] = []  # what each request was shown
    looked: list[CameraFrame] = []
    open_request, see = Engine.open, camera_buffer.CameraBuffer.add_frame

    def noted(engine: Engine, request: Request, inputs: Any = None) -> Any:
        asked.append([])
        return open_request(engine, request, None if inputs is None else watched(inputs, asked[-1]))

    async def watched(inputs: Any, shown: list[Any]) -> AsyncGenerator[Chunk]:
        async for chunk in inputs:
            shown += [chunk.pixels] if isinstance(chunk, VideoFrame) else []
            yield chunk

    def counted(self: camera_buffer.CameraBuffer, frame: CameraFrame, now_s: float, position: int) -> None:
        looked.append(frame)
        see(self, frame, now_s, position)

    monkeypatch.setattr(Engine, "open", noted)
    monkeypatch.setattr(camera_buffer.CameraBuffer, "add_frame", counted)
    monkeypatch.setattr(
        camera_buffer, "FRESH_S", TIMEOUT_S
    )  # a slow browser's pictures are old ones, which a turn leaves out
    async with browser.page() as page:
        await page.open(server.http, transport=transport)
        await page.start()
        await page.do("click", "#camera")
        await page.until("document.querySelector('#preview video')?.videoWidth > 0")
        await eventually(lambda: len(looked) >= PICTURES)
        await page.value("speak(1.0)")
        await page.shows("#captions .answer", "I heard")
        seen = asked[-1][-PICTURES:]
        assert len(seen) == PICTURES
        assert all(picture.shape == (480, 640, 3) or transport == "webrtc" for picture in seen)
        assert not any(np.array_equal(one, other) for one, other in itertools.pairwise(seen))  # it moves
        sent = await page.wire("parley.camera.frame")
        assert bool(sent) == (transport == "websocket")
        now_ms = await page.value("performance.now()")
        assert not sent or len(sent) <= 2 + (now_ms - sent[0]["at"]) / 1000  # one at once, then one a second
        item = next(one["item"] for one in await page.wire("conversation.item.added") if one["item"]["role"] == "user")
        assert [part["type"] for part in item["content"]] == ["input_image"] * 3 + ["input_audio"]
        assert await page.wire("conversation.item.create") == []
        assert await page.wire("error") == []
        await page.do("click", "#end")
    await server.empty()
