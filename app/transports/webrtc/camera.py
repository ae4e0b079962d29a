"""A call's camera: every frame is read, the newest is passed on at a budgeted rate.

A model looks at a picture a turn, not at thirty a second; what is read in between costs its decoding only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError
from av.video.frame import VideoFrame

from app.media import encode_frame, image_url
from app.realtime.commands import See

LONGEST = 640
"""Pixels of the longer side: what models that see scale a camera's picture to, about."""


async def watch_camera(track: MediaStreamTrack, every_s: float, see: Callable[[See], None]) -> None:
    """Read ``track`` to its end; ``see`` gets one frame in ``every_s`` at most."""
    loop = asyncio.get_running_loop()
    next_s = loop.time()
    try:
        while True:
            frame = await track.recv()
            if loop.time() >= next_s and isinstance(frame, VideoFrame):
                next_s = loop.time() + every_s
                pixels, jpeg = await asyncio.to_thread(encode_frame, frame, LONGEST)
                see(See(pixels, image_url(jpeg)))
    except MediaStreamError:
        return


async def ignore(track: MediaStreamTrack) -> None:
    """Read a track that nobody wants: what aiortc decodes of it waits without a bound."""
    try:
        while True:
            await track.recv()
    except MediaStreamError:
        return
