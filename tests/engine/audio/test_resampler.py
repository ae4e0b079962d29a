"""Sound at another rate: the same samples however it is cut, and as many of them as last as long."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.audio.resampler import Resampler, resample

RATES_HZ = (8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000)


def sine(samples: int, rate_hz: int, hz: float = 440.0) -> np.ndarray:
    return (9000 * np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz)).astype(np.int16)


@settings(max_examples=60, deadline=None)
@example([32], 8000, 11025, np.int16)
@given(
    st.lists(st.integers(0, 5_000), min_size=1, max_size=8), st.sampled_from(RATES_HZ), st.sampled_from(RATES_HZ),
    st.sampled_from([np.int16, np.float32]),
)  # fmt: skip
def test_resampling_does_not_depend_on_how_the_sound_is_cut(
    sizes: list[int], from_hz: int, to_hz: int, dtype: type
) -> None:
    sound = sine(sum(sizes), from_hz).astype(dtype)
    resampler, pieces, at = Resampler(from_hz, to_hz, dtype), [], 0
    for size in sizes:
        pieces.append(resampler.push(sound[at : at + size]))
        at += size
    pieces.append(resampler.flush())
    whole = resample(sound, from_hz, to_hz)
    assert np.array_equal(np.concatenate(pieces), whole)
    assert whole.dtype == dtype
    if len(sound) >= from_hz // 100 or from_hz == to_hz:  # of less than 10 ms nothing may come
        assert abs(len(whole) - len(sound) * to_hz / from_hz) < 1
    assert len(sound) == 0 or len(sound) * to_hz / from_hz - sum(map(len, pieces[:-1])) < 0.004 * to_hz + 1.5


def test_resampling_keeps_the_pitch_and_the_length() -> None:
    out = resample(sine(24_000, 24_000), 24_000, 16_000)
    assert abs(len(out) - 16_000) <= 2
    assert np.abs(np.fft.rfft(out[:16_000] / 1.0)).argmax() == pytest.approx(440, abs=1)
    same = sine(100, 16_000)
    assert Resampler(16_000, 16_000).push(same) is same


def test_resamplers_start_no_threads() -> None:
    """A session has three; a thread for each core of the machine would come with every one of them."""
    before = psutil.Process().num_threads()
    resamplers = [Resampler(24_000, 16_000) for _ in range(5)]
    for one in resamplers:
        one.push(np.zeros(480, np.int16))
    assert psutil.Process().num_threads() == before
