"""The stream that goes out: silence is filled in, late silence is left out, and nothing follows the session's end."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np

from app.live.sound import FRAME_S, SILENCE, LiveSound
from app.live.timeline import OutputTimeline
from app.realtime.protocol.options import PcmFormat


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def stream() -> tuple[Clock, OutputTimeline, LiveSound, list[bytes]]:
    sent: list[bytes] = []
    clock = Clock()
    timeline = OutputTimeline(clock)
    put = lambda text, _: sent.append(base64.b64decode(json.loads(text)["delta"]))  # noqa: E731
    return clock, timeline, LiveSound(timeline, PcmFormat(), put), sent


async def one_look(sound: LiveSound) -> None:
    """Let the stream look at the clock once."""
    task = asyncio.create_task(sound.run())
    await asyncio.sleep(0)
    task.cancel()


async def test_a_stream_that_was_held_up_sends_one_frame_and_is_in_time_again() -> None:
    clock, timeline, sound, sent = stream()
    clock.now_s = FRAME_S
    await one_look(sound)
    clock.now_s = 2.0
    await one_look(sound)
    assert sent == [SILENCE.tobytes()] * 2
    assert -FRAME_S < timeline.ahead_s <= 0
    await one_look(sound)
    assert len(sent) == 2


async def test_nothing_follows_the_end() -> None:
    clock, timeline, sound, sent = stream()
    sound.play(np.ones(480, "<i2").tobytes())
    timeline.over = True
    clock.now_s = 1.0
    sound.play(np.ones(480, "<i2").tobytes())
    await one_look(sound)
    assert len(sent) == 1
