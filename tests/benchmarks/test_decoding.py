"""The benchmark of decoder processes: both ways decode the same files."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from app.media.audio import decode_audio
from app.media.videos import decode_video
from benchmarks import decoding


def test_the_recording_and_the_video_last_three_seconds() -> None:
    assert len(decode_audio(decoding.recording(), 10.0)) == pytest.approx(48_000, abs=500)
    seen = decode_video(decoding.video(), 10.0, decoding.FEED)
    assert len(seen.frames) / seen.fps == pytest.approx(3.0, abs=0.5)
    assert not np.array_equal(seen.frames[0], seen.frames[-1])


@pytest.mark.slow
def test_each_file_is_decoded_in_both_ways() -> None:
    times_ms = asyncio.run(decoding.measure(2))
    assert len(times_ms) == 3
    assert all(here > 0 and helped > 0 for pairs in times_ms.values() for here, helped in pairs)
