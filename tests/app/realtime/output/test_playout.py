"""Pacing by a clock that is an argument."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.realtime.output.playout import Playout
from app.realtime.ports import SOCKET
from engine import SPEAKER_RATE_HZ


def wave(seconds: float) -> np.ndarray:
    return np.arange(int(seconds * SPEAKER_RATE_HZ), dtype=np.float32)


def due(playout: Playout, now_s: float) -> float:
    """Send what is due; its seconds."""
    sent = 0.0
    while (packet := playout.take(now_s)) is not None:
        sent += packet.seconds
    return sent


def test_the_lead_leaves_at_once_and_the_rest_as_it_is_played() -> None:
    playout = Playout(lead_s=1.0)
    playout.push(wave(5.0))
    assert 1.0 <= due(playout, 100.0) <= 1.0 + SOCKET.packet_s + 1e-6
    wait_s = playout.due_in_s(100.0)
    assert wait_s is not None
    assert 0 < wait_s <= SOCKET.packet_s
    assert due(playout, 100.0 + wait_s - 0.001) == 0
    assert due(playout, 101.0) > 0.85
    assert playout.underruns == 0


def test_a_listener_that_pauses_has_the_rest_when_it_goes_on() -> None:
    playout = Playout(lead_s=1.0)
    playout.push(wave(5.0))
    due(playout, 100.0)
    playout.pause(100.4)
    assert playout.played_samples(102.0) == playout.played_samples(100.4)
    playout.resume(102.4)
    assert playout.unplayed_s(102.4) == pytest.approx(0.7)
    assert due(playout, 102.4) == pytest.approx(0.4)
    assert playout.underruns == 0


def test_a_listener_that_had_run_dry_before_it_paused_has_nothing_left() -> None:
    playout = Playout(lead_s=1.0)
    playout.push(wave(0.2))
    due(playout, 100.0)
    playout.pause(100.4)
    playout.resume(101.0)
    assert playout.unplayed_s(101.0) == 0
    playout.push(wave(0.2))
    assert due(playout, 101.0) == pytest.approx(0.2)
    assert playout.underruns == 0, "the pause was deliberate"


def test_the_clock_starts_at_the_first_packet_and_a_gap_is_an_underrun() -> None:
    playout = Playout()
    playout.push(wave(0.1))
    due(playout, 50.0)
    playout.push(wave(0.1))
    due(playout, 50.25)
    assert playout.underruns == 1
    assert abs(playout.underrun_s - 0.15) < 1e-6
    playout.push(wave(0.1))
    due(playout, 50.3)
    assert playout.underruns == 1


def test_an_answer_plays_behind_what_another_one_has_sent() -> None:
    before, playout = Playout(lead_s=0.06, packet_s=0.02), Playout(lead_s=0.06, packet_s=0.02)
    before.push(wave(0.02))
    due(before, 5.0)
    before._dry_at_s = 5.3
    playout.follow(before)
    playout.push(wave(0.2))
    assert playout.due_in_s(5.1) == pytest.approx(0.14)
    assert due(playout, 5.25) == pytest.approx(0.02)
    assert playout.unplayed_s(5.25) == pytest.approx(0.07)
    late = Playout()
    late.follow(before)
    late.push(wave(0.2))
    due(late, 6.0)
    assert (late.underruns, late.unplayed_s(6.0)) == (0, pytest.approx(0.2))


def test_a_calls_packets_are_whole_until_the_end_which_leaves_with_what_is_before_it() -> None:
    playout = Playout(lead_s=0.06, packet_s=0.02, whole=True)
    playout.push(wave(0.05))
    assert due(playout, 5.0) == pytest.approx(0.04)
    playout.push(wave(0.03))
    assert due(playout, 5.001) == pytest.approx(0.04), "the part and what came behind it are two packets"
    playout.push(wave(0.01))
    assert playout.due_in_s(5.001) == pytest.approx(0.059), "one packet before the listener runs dry"
    playout.end()
    assert playout.due_in_s(5.001) == pytest.approx(0.019), "as ahead as any other"
    assert due(playout, 5.02) == pytest.approx(0.01)
    assert playout.drained


def test_a_part_that_nothing_follows_leaves_before_the_listener_runs_dry() -> None:
    """Words without sound may follow for long: the part of a packet is no click behind them."""
    playout = Playout(lead_s=0.06, packet_s=0.02, whole=True)
    playout.push(wave(0.01))
    assert playout.take(5.0) is None
    assert playout.due_in_s(5.0) == pytest.approx(0.02)
    assert due(playout, 5.02) == pytest.approx(0.01)
    playout.push(wave(0.03))
    assert due(playout, 5.02) == pytest.approx(0.02)
    assert playout.due_in_s(5.02) == pytest.approx(0.01)
    assert playout.underruns == 0
    sockets = Playout()
    sockets.push(wave(0.01))
    assert due(sockets, 5.0) == pytest.approx(0.01), "where the client plays, a part leaves at once"


def test_the_first_packet_waits_for_a_reserve_as_long_as_that_lasts_at_most() -> None:
    playout = Playout(lead_s=0.04, packet_s=0.02, reserve_s=0.1)
    playout.push(wave(0.04))
    assert due(playout, 5.0) == 0
    assert playout.due_in_s(5.02) == pytest.approx(0.08)
    playout.push(wave(0.06))
    assert due(playout, 5.03) > 0, "there is enough"
    late = Playout(lead_s=0.04, packet_s=0.02, reserve_s=0.1)
    late.push(wave(0.04))
    assert due(late, 7.0) == 0
    assert due(late, 7.1) > 0, "nothing more came"
    short = Playout(lead_s=0.04, packet_s=0.02, reserve_s=0.1)
    short.push(wave(0.04))
    short.end()
    assert due(short, 9.0) > 0, "nothing more comes"


def test_heard_follows_the_clock_and_never_passes_what_was_sent() -> None:
    playout = Playout(lead_s=2.0)
    playout.push(wave(1.0))
    assert playout.played_samples(10.0) == 0
    due(playout, 10.0)
    assert playout.played_samples(10.25) == SPEAKER_RATE_HZ // 4
    assert playout.played_samples(99.0) == playout.sent_samples == SPEAKER_RATE_HZ


def test_what_was_not_heard_is_sent_again_from_there_and_at_once() -> None:
    playout = Playout(lead_s=0.04, packet_s=0.02, kept_s=30.0)
    playout.push(wave(2.0))
    for n in range(50):
        due(playout, 10.0 + n * 0.02)
    sent = playout.sent_samples
    assert playout.rewind(10.5, lag_s=0.04) == sent - playout.sent_samples
    assert playout.sent_samples == pytest.approx(0.46 * SPEAKER_RATE_HZ, abs=0.02 * SPEAKER_RATE_HZ)
    packet = playout.take(20.0)
    assert packet is not None
    assert packet.samples[0] == playout.sent_samples - len(packet.samples)
    assert playout.underruns == 0


def test_what_was_heard_is_not_sent_again_and_no_more_is_kept_than_asked_for() -> None:
    playout = Playout(lead_s=9.0, packet_s=0.02, kept_s=0.5)
    playout.push(wave(1.0))
    due(playout, 10.0)
    assert playout.rewind(11.5) == 0
    assert playout.rewind(10.0) == pytest.approx(0.5 * SPEAKER_RATE_HZ, abs=0.02 * SPEAKER_RATE_HZ)


def test_a_flush_forgets_what_was_not_sent() -> None:
    playout = Playout(lead_s=0.5)
    playout.push(wave(3.0))
    due(playout, 0.0)
    playout.flush()
    assert playout.drained
    assert playout.take(99.0) is None
    assert playout.sent_samples < SPEAKER_RATE_HZ


@given(st.lists(st.integers(1, 30_000), max_size=6), st.lists(st.floats(0, 3), max_size=20))
def test_every_sample_leaves_once_in_order(sizes: list[int], steps: list[float]) -> None:
    playout, got, now_s = Playout(), [], 0.0
    whole = np.arange(sum(sizes), dtype=np.float32)
    at = 0
    for size in sizes:
        playout.push(whole[at : at + size])
        at += size
    playout.end()
    for step in [*steps, *[1.0] * 20]:
        now_s += step
        while (packet := playout.take(now_s)) is not None:
            got.append(packet.samples)
            assert packet.seconds <= SOCKET.packet_s + 1e-9
    assert np.array_equal(np.concatenate([*got, np.empty(0, np.float32)]), whole)
    assert playout.drained
