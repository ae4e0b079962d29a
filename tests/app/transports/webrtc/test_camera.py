"""A call's camera: the newest picture joins the user's turn, at a budgeted rate, however fast pictures come."""

from __future__ import annotations

import asyncio
import base64
import time
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from aiortc import MediaStreamTrack, VideoStreamTrack
from aiortc.mediastreams import MediaStreamError

from app.media import decode_image_url, encode_frame
from app.realtime.commands import See
from app.transports.webrtc.camera import LONGEST, watch_camera
from tests.app.rig import silence, tone
from tests.app.transports.webrtc.caller import Caller


def picture(width: int, height: int, level: int = 200) -> av.VideoFrame:
    pixels = np.full((height, width, 3), level, np.uint8)
    return av.VideoFrame.from_ndarray(pixels, format="rgb24")


class Camera(VideoStreamTrack):
    """Grey pictures, thirty a second."""

    async def recv(self) -> av.VideoFrame:
        pts, time_base = await self.next_timestamp()
        frame = picture(320, 240)
        frame.pts, frame.time_base = pts, time_base
        return frame


class Film(MediaStreamTrack):
    """So many frames, each when it is asked for, and then the end."""

    kind = "video"

    def __init__(self, frames: int, pause_s: float) -> None:
        super().__init__()
        self._frames, self._pause_s = frames, pause_s

    async def recv(self) -> av.VideoFrame:
        if not self._frames:
            raise MediaStreamError
        self._frames -= 1
        await asyncio.sleep(self._pause_s)
        frame = picture(64, 48, 100 + self._frames)
        frame.pts, frame.time_base = 0, Fraction(1, 90_000)
        return frame


@pytest.mark.parametrize("every_s", [0.1, 10.0])
async def test_pictures_come_at_a_budgeted_rate(every_s: float) -> None:
    seen: list[See] = []
    begun_s = time.monotonic()
    await watch_camera(Film(40, 0.01), every_s, seen.append)
    assert 1 <= len(seen) <= 1 + (time.monotonic() - begun_s) / every_s
    assert seen[0].pixels.shape == (48, 64, 3)


@pytest.mark.parametrize(("size", "small"), [((1280, 720), (640, 360)), ((480, 640), (480, 640)), ((3, 3), (2, 2))])
def test_a_frame_is_scaled_and_can_be_read_again(size: tuple[int, int], small: tuple[int, int]) -> None:
    pixels, jpeg = encode_frame(picture(*size), LONGEST)
    assert pixels.shape == (small[1], small[0], 3)
    again = decode_image_url("data:image/jpeg;base64," + base64.b64encode(jpeg).decode())
    assert again.shape == pixels.shape
    assert int(again.mean()) == pytest.approx(200, abs=6)


async def test_the_newest_pictures_join_the_turn(serve_with: Any) -> None:
    async with serve_with(camera_every_s=0.2) as server:
        caller = Caller(server)
        caller.peer.addTrack(Camera())
        await caller.connect()
        await asyncio.sleep(1.0)
        caller.mouth.say(np.concatenate([tone(0.5), silence(1.0)]))
        await caller.until("response.done")
        added = next(event for event in caller.of("conversation.item.added") if event["item"]["role"] == "user")
        parts = added["item"]["content"]
        assert [part["type"] for part in parts] == ["input_image"] * 3 + ["input_audio"]
        assert decode_image_url(parts[2]["image_url"]).shape == (240, 320, 3)
        assert caller.of("response.done")[0]["response"]["status"] == "completed"
        await caller.hang_up()
        await server.empty()
