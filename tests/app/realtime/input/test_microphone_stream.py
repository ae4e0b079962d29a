"""The microphone of a duplex session: resampled, muted, bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from app.media.audio import MediaError
from app.realtime.input.microphone_stream import MOST_WAITING_S, MicrophoneStream
from app.realtime.protocol.options import SessionOptions, session_options
from tests.app.realtime.test_session import FakeEngine, Talk
from tests.app.rig import tone

RATE_HZ = 24_000


class Rig:
    """A stream, and what came out of it."""

    def __init__(self, **format: Any) -> None:
        options = session_options(SessionOptions(), {"audio": {"input": {"format": format}}} if format else {})[0]
        self.dropped_s = 0.0
        context: Any = Talk(FakeEngine()).context
        self.stream = MicrophoneStream(context, options, RATE_HZ, self._drop)
        self._follow = self.stream.follow()

    def _drop(self, seconds: float) -> None:
        self.dropped_s += seconds

    async def heard(self) -> Any:
        """All audio that waits: int16."""
        pieces: list[Any] = []
        while True:
            coming = asyncio.ensure_future(anext(self._follow))
            for _ in range(3):
                await asyncio.sleep(0)
            if not coming.done():
                coming.cancel()
                await asyncio.wait((coming,))
                self._follow = self.stream.follow()
                return np.concatenate([np.zeros(0, np.int16), *pieces])
            pieces.append(coming.result().pcm)


async def test_audio_at_the_models_rate_passes_unchanged() -> None:
    rig = Rig()
    pcm = tone(0.3)
    for at in range(0, len(pcm), 700):
        await rig.stream.append(pcm[at : at + 700].tobytes())
    assert np.array_equal(await rig.heard(), pcm)


@pytest.mark.parametrize(
    ("format", "sample_bytes", "rate_hz"),
    [({"type": "audio/pcm", "rate": 16_000}, 2, 16_000), ({"type": "audio/pcmu"}, 1, 8_000)],
)
async def test_other_rates_are_resampled(format: Any, sample_bytes: int, rate_hz: int) -> None:
    rig = Rig(**format)
    await rig.stream.append(bytes(rate_hz * sample_bytes))
    assert len(await rig.heard()) == pytest.approx(RATE_HZ, abs=100)


async def test_a_media_stream_is_resampled() -> None:
    rig = Rig()
    for _ in range(50):
        rig.stream.add_samples(np.ones(320, np.int16))
    assert len(await rig.heard()) == pytest.approx(RATE_HZ, abs=100)


async def test_a_muted_microphone_passes_nothing() -> None:
    rig = Rig()
    rig.stream.muted = True
    await rig.stream.append(tone(0.1).tobytes())
    rig.stream.muted = False
    assert not len(await rig.heard())


async def test_a_burst_loses_its_oldest_audio_and_is_counted() -> None:
    rig = Rig()
    pcm = np.arange(10 * RATE_HZ).astype(np.int16)
    await rig.stream.append(pcm.tobytes())
    kept = await rig.heard()
    assert len(kept) <= MOST_WAITING_S * RATE_HZ
    assert np.array_equal(kept, pcm[-len(kept) :])
    assert rig.dropped_s == pytest.approx((len(pcm) - len(kept)) / RATE_HZ)


async def test_cleared_audio_is_not_heard() -> None:
    rig = Rig()
    await rig.stream.append(tone(0.1).tobytes())
    rig.stream.clear()
    await rig.stream.append(tone(0.02).tobytes())
    assert len(await rig.heard()) == 480


async def test_half_a_sample_is_refused() -> None:
    with pytest.raises(MediaError):
        await Rig().stream.append(b"123")
