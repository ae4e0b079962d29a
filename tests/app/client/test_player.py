"""The listener of the figures: when he hears the first sound, and when he runs dry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client.player import AUDIBLE_RMS, Player
from engine import SPEAKER_RATE_HZ
from engine.core import Wave

FRAME_S = 0.08


def tone(seconds: float, level: float = 0.1) -> Wave:
    return np.full(round(seconds * SPEAKER_RATE_HZ), level, np.float32)


def played(*packets: tuple[float, float]) -> Player:
    """A player that got ``(arrival in s, seconds of sound)``."""
    player = Player()
    for at_s, seconds in packets:
        player.receive(at_s, tone(seconds))
    return player


def chunks(sizes: list[int], frame_takes_s: float) -> Player:
    """An answer whose chunks of codec frames arrive when their last frame has been made."""
    player, made = Player(), 0
    for size in sizes:
        made += size
        player.receive(made * frame_takes_s, tone(size * FRAME_S))
    return player


def test_packets_in_time_leave_no_gap() -> None:
    player = played((1.0, 0.1), (1.05, 0.1), (1.19, 0.1))
    assert (player.underruns, player.dry_s) == (0, 0.0)


def test_a_late_packet_is_an_underrun_as_long_as_it_was_late() -> None:
    player = played((1.0, 0.1), (1.25, 0.1), (1.3, 0.1))
    assert player.underruns == 1
    assert player.dry_s == pytest.approx(0.15)


def test_after_an_underrun_playing_goes_on_from_the_late_packet() -> None:
    player = played((0.0, 0.1), (0.2, 0.1), (0.4, 0.1))
    assert player.underruns == 2
    assert player.dry_s == pytest.approx(0.2)


def test_a_pause_is_no_underrun_and_the_rest_plays_after_it() -> None:
    player = played((1.0, 0.5))
    player.pause(1.2)
    player.pause(1.3)
    player.receive(2.0, tone(0.5))
    assert player.played_samples(2.1) == round(0.2 * SPEAKER_RATE_HZ)
    player.resume(3.0)
    assert player.played_samples(3.1) == round(0.3 * SPEAKER_RATE_HZ)
    assert player.ends_s == pytest.approx(3.8)
    assert player.underruns == 0


def test_a_player_that_paused_with_nothing_left_plays_what_comes_meanwhile_after_it() -> None:
    player = played((1.0, 0.1))
    player.pause(1.5)
    player.receive(1.6, tone(0.1))
    assert player.played_samples(1.7) == round(0.1 * SPEAKER_RATE_HZ)
    player.resume(2.0)
    assert player.played_samples(2.05) == round(0.15 * SPEAKER_RATE_HZ)
    assert player.ends_s == pytest.approx(2.1)


def test_silence_behind_the_last_sound_may_be_late() -> None:
    """A gap in silence that sound follows is one: there the voice was expected."""
    player = played((0.0, 0.1), (0.2, 0.1))
    player.receive(0.4, tone(0.1, level=0.0))
    assert player.gaps == [pytest.approx((0.1, 0.2))]
    player.receive(0.5, tone(0.1))
    assert player.gaps == [pytest.approx((0.1, 0.2)), pytest.approx((0.3, 0.4))]


def test_a_ramp_no_steeper_than_real_time_allows_never_runs_dry() -> None:
    assert chunks([1, 2, 3, 4, 6, 9, 12, 12, 12], frame_takes_s=0.5 * FRAME_S).underruns == 0


def test_the_schedule_of_4_then_25_frames_runs_dry() -> None:
    """The negative control: at half of real time 25 frames take longer to make than four last."""
    player = chunks([4, 25, 25], frame_takes_s=0.5 * FRAME_S)
    assert player.underruns == 1
    assert player.dry_s == pytest.approx(25 * 0.5 * FRAME_S - 4 * FRAME_S)


def test_the_first_sound_is_not_the_first_packet() -> None:
    player = Player()
    player.receive(1.0, tone(0.1, level=0.0))
    player.receive(1.02, tone(0.1))
    assert player.first_s == 1.0
    assert player.audible_s == pytest.approx(1.1)


def test_sound_that_comes_late_is_heard_when_it_comes() -> None:
    player = Player()
    player.receive(1.0, tone(0.02, level=0.0))
    player.receive(2.0, tone(0.1))
    assert player.audible_s == pytest.approx(2.0)


@pytest.mark.parametrize(("level", "audible"), [(AUDIBLE_RMS * 1.01, True), (AUDIBLE_RMS * 0.99, False)])
def test_the_threshold(level: float, audible: bool) -> None:
    player = Player()
    player.receive(0.0, tone(0.1, level=level))
    assert (player.audible_s is not None) == audible


def test_no_sound_is_never_zero() -> None:
    assert Player().audible_s is None
    assert played((1.0, 0.01)).audible_s is None  # half a window


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4000)), min_size=1, max_size=30))
def test_playing_takes_as_long_as_the_sound_and_the_gaps(packets: list[tuple[float, int]]) -> None:
    player, now_s = Player(), 0.0
    for wait_s, size in packets:
        now_s += wait_s
        player.receive(now_s, np.ones(size, np.float32))
    assert player.first_s is not None
    total_s = player._plays_until_s - player.first_s
    tolerated_s = 0.001 * len(packets)
    assert total_s == pytest.approx(player.seconds + player.dry_s, abs=tolerated_s)
    assert player.underruns <= len(packets) - 1


def test_what_was_played_by_a_moment() -> None:
    player = Player()
    assert player.played_samples(5.0) == 0
    player.receive(1.0, np.ones(24_000, np.float32))
    player.receive(3.0, np.ones(24_000, np.float32))  # the player was dry for a second
    heard = [player.played_samples(now_s) for now_s in (0.5, 1.0, 1.25, 2.0, 2.5, 3.0, 3.5, 9.0)]
    assert heard == [0, 0, 6_000, 24_000, 24_000, 24_000, 36_000, 48_000]
