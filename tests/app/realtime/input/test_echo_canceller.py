"""The contract of echo cancellers, for the real one and the tests' own; and the choice of one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.realtime.input import echo_canceller as module
from app.realtime.input.echo_canceller import WebRtcEchoCanceller, available, echo_canceller
from app.realtime.input.linear_echo_filter import LinearEchoFilter
from app.realtime.ports import EchoCanceller
from engine.core import MIC_RATE_HZ, Pcm
from tests.app.realtime.input.echoes import PIECE, SubtractingCanceller, late, power, voice

needs_library = pytest.mark.skipif(not available(), reason="pywebrtc-audio is not installed")
MAKERS = [SubtractingCanceller, LinearEchoFilter, pytest.param(WebRtcEchoCanceller, marks=needs_library)]
NewCanceller = Callable[[], EchoCanceller]


def through(canceller: EchoCanceller, near: Pcm, far: Pcm, piece: int = PIECE) -> Pcm:
    pieces = range(0, len(near), piece)
    out = [canceller.process(near[at : at + piece], far[at : at + piece]) for at in pieces]
    assert [len(one) for one in out] == [len(near[at : at + piece]) for at in pieces]
    assert {one.dtype for one in out} == {np.dtype(np.int16)}
    return np.concatenate(out)


@pytest.mark.parametrize("new", MAKERS)
@pytest.mark.parametrize("piece", [PIECE, 512, 7, 2560, 1600])
def test_an_echo_is_at_least_20_db_softer(new: NewCanceller, piece: int) -> None:
    far = voice(5)
    heard = late(far, 320)
    assert power(through(new(), heard, far, piece)[3 * MIC_RATE_HZ :]) < power(heard[3 * MIC_RATE_HZ :]) / 100


@pytest.mark.parametrize("new", MAKERS)
def test_without_playback_the_user_is_heard_unchanged(new: NewCanceller) -> None:
    near = voice(3)
    heard = through(new(), near, np.zeros_like(near))
    assert power(heard) == pytest.approx(power(near), rel=0.3)


@pytest.mark.parametrize("new", MAKERS)
@pytest.mark.parametrize("pcm", [np.full(PIECE, -32768, np.int16), np.zeros(PIECE, np.int16), np.zeros(0, np.int16)])
def test_any_samples_are_accepted(new: NewCanceller, pcm: Pcm) -> None:
    canceller = new()
    for _ in range(3):
        assert len(canceller.process(pcm, pcm)) == len(pcm)


@pytest.mark.parametrize("new", MAKERS)
def test_cancellers_share_no_state(new: NewCanceller) -> None:
    far = voice(1)
    alone = through(new(), late(far, 320), far)
    other = new()
    through(other, voice(1, seed=5), voice(1, seed=6))
    assert np.array_equal(through(new(), late(far, 320), far), alone)


def test_the_linear_filter_keeps_the_users_voice_while_an_echo_as_loud_is_removed() -> None:
    """Its negative control is the user and the echo unfiltered: at 0 dB."""
    far, near = voice(12), voice(12, seed=1)
    echo = late(far, 320, 1.0)
    left = through(LinearEchoFilter(), near + echo, far).astype(np.float64) - near
    assert power(left[8 * MIC_RATE_HZ :]) < power(echo[8 * MIC_RATE_HZ :]) / 10


def test_a_missing_library_switches_it_off_and_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(module, "available", lambda: False)
    monkeypatch.setattr(module, "log", lambda event, **_: logged.append(event))
    assert echo_canceller("never") is None
    assert not logged
    assert echo_canceller("auto") is None
    assert logged == ["echo_cancellation.unavailable"]


@needs_library
def test_the_setting_chooses() -> None:
    assert echo_canceller("never") is None
    assert echo_canceller("auto") is echo_canceller("always") is WebRtcEchoCanceller
