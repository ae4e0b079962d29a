"""Which frames of a duplex model are sent, so that the listener does not fall behind."""

from __future__ import annotations

from app.realtime.output.live_playout import MOST_AHEAD_S, MOST_SILENT_AHEAD_S, LivePlayout

FRAME_S = 0.08


def test_frames_in_real_time_are_all_sent() -> None:
    playout = LivePlayout()
    assert all(playout.admits(FRAME_S, speech, n * FRAME_S) for n in range(100) for speech in (n % 2 == 0,))


def test_a_burst_is_bounded() -> None:
    playout = LivePlayout()
    sent = sum(playout.admits(FRAME_S, speech=True, now_s=5.0) for _ in range(100))
    assert MOST_AHEAD_S <= sent * FRAME_S <= MOST_AHEAD_S + FRAME_S


def test_the_delay_of_a_burst_shrinks_in_silence() -> None:
    """After a hold-up of the server the listener is late; leaving out silence makes up for it."""
    playout = LivePlayout()
    for _ in range(5):
        playout.admits(FRAME_S, speech=True, now_s=5.0)
    for n in range(1, 20):
        playout.admits(FRAME_S, speech=False, now_s=5.0 + n * FRAME_S)
    assert playout.ahead_s(5.0 + 20 * FRAME_S) <= MOST_SILENT_AHEAD_S


def test_silence_that_the_transport_put_in_for_a_late_frame_is_made_up_for() -> None:
    playout = LivePlayout()
    late_s = MOST_SILENT_AHEAD_S + FRAME_S
    assert playout.admits(FRAME_S, speech=True, now_s=1.0, ahead_s=late_s)
    assert not playout.admits(FRAME_S, speech=False, now_s=1.0 + FRAME_S, ahead_s=late_s)
    assert playout.admits(FRAME_S, speech=False, now_s=1.0 + 2 * FRAME_S, ahead_s=late_s - FRAME_S)


def test_a_listener_that_ran_dry_is_not_late() -> None:
    playout = LivePlayout()
    playout.admits(FRAME_S, speech=True, now_s=1.0)
    assert playout.ahead_s(9.0) == 0.0
