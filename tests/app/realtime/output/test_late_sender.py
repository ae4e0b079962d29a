"""A sender whose machine is taken away from it: calls hear every sample in time, and a calm call has no more ahead.

The clock is simulated. The sender sleeps until the next packet is due; a stall makes it come when that is over. The
listener's player starts with the first packet and has no buffer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from app.client.player import Player
from app.realtime.output.playout import Playout
from app.realtime.ports import CALL
from app.realtime.timer_lateness import CALM_S, MOST_S, SOME, TimerLatenessEstimator
from engine import SPEAKER_RATE_HZ

TICK_S = 1e-5
"""No timer is finer."""

Stall = tuple[float, float]
"""When it begins, and how long it is, in seconds."""


def heard(
    seconds: float, stalls: Sequence[Stall], lateness: TimerLatenessEstimator | None, begun_s: float = 0.0
) -> Player:
    """What a listener hears of an answer that was made at once, with its arrival times."""
    playout, player, now_s = Playout(CALL.lead_s, CALL.packet_s, lateness=lateness), Player(), begun_s
    playout.push(np.ones(round(seconds * SPEAKER_RATE_HZ), np.float32))
    playout.end()
    while not playout.drained:
        now_s = next((begun + length for begun, length in stalls if begun <= now_s < begun + length), now_s)
        while (packet := playout.take(now_s)) is not None:
            player.receive(now_s, packet.samples)
        now_s += max(playout.due_in_s(now_s) or 0.0, TICK_S)
    return player


def busy(seconds: float, seed: int) -> list[Stall]:
    """Stalls of 10 to 30 ms every second or so, and one of 60 to 100 ms in each quarter of a minute."""
    draw = random.Random(seed)
    small = [(at + draw.random(), draw.uniform(0.010, 0.030)) for at in range(int(seconds))]
    large = [(at + draw.uniform(0.0, 15.0), draw.uniform(0.060, 0.100)) for at in range(5, int(seconds) - 20, 15)]
    return [*large, *small]


def test_a_call_on_a_busy_machine_does_not_run_dry_where_a_fixed_lead_does() -> None:
    fixed = grown = 0
    for seed in range(6):
        stalls = busy(60.0, seed)
        fixed += heard(60.0, stalls, None).underruns
        grown += heard(60.0, stalls, TimerLatenessEstimator()).underruns
    assert fixed >= 10, "the control: the stalls are such that 40 ms ahead are not enough"
    assert grown == 0


def test_what_came_before_an_answer_counts_for_it_too() -> None:
    """One server's calls share what they found; the next answer's second packet is early enough already."""
    lateness = TimerLatenessEstimator()
    heard(10.0, [(2.0, 0.040), (4.0, 0.040), (6.0, 0.040)], lateness)
    assert heard(10.0, [(11.0, 0.150)], lateness, begun_s=10.5).underruns == 0
    assert heard(10.0, [(11.0, 0.150)], None, begun_s=10.5).underruns == 1


def test_of_large_delays_that_nothing_foretells_only_the_first_ones_are_heard() -> None:
    stalls = [(float(at_s), 0.180) for at_s in range(5, 55, 5)]
    assert heard(60.0, stalls, None).underruns == len(stalls)
    assert heard(60.0, stalls, TimerLatenessEstimator()).underruns == SOME


def test_the_first_packet_leaves_as_before() -> None:
    for lateness in (None, very_late(4.0)):
        assert heard(2.0, [], lateness, begun_s=5.0).first_s == 5.0


def very_late(at_s: float) -> TimerLatenessEstimator:
    lateness = TimerLatenessEstimator()
    for number in range(SOME):
        lateness.came(0.5, at_s - SOME + number)
    return lateness


def ahead_s(lateness: TimerLatenessEstimator | None, at_s: float) -> float:
    """How much is ahead of the listener at most, in an answer of that moment."""
    playout, now_s, most_s = Playout(CALL.lead_s, CALL.packet_s, lateness=lateness), at_s, 0.0
    playout.push(np.ones(SPEAKER_RATE_HZ, np.float32))
    playout.end()
    while not playout.drained:
        while playout.take(now_s) is not None:
            most_s = max(most_s, playout.unplayed_s(now_s))
        now_s += max(playout.due_in_s(now_s) or 0.0, TICK_S)
    return most_s


def test_the_lead_is_bounded_and_shrinks_again_to_what_a_barge_in_may_cost() -> None:
    usual_s, lateness = ahead_s(None, 0.0), very_late(100.0)
    assert usual_s <= CALL.lead_s + CALL.packet_s + 1e-9
    assert usual_s + MOST_S - CALL.packet_s < ahead_s(lateness, 100.0) <= usual_s + MOST_S + 1e-9
    assert ahead_s(lateness, 100.0 + CALM_S) <= usual_s + 1e-9


class Told(TimerLatenessEstimator):
    """One that only notes what it is told."""

    def __init__(self, told: list[float]) -> None:
        super().__init__()
        self.told = told

    def came(self, late_s: float, now_s: float) -> None:
        self.told.append(late_s)


def test_a_pause_is_no_delay() -> None:
    """Neither a listener who is heard out, nor one who was away."""
    for wait in (Playout.resume, lambda playout, now_s: playout.rewind(now_s - 0.1)):
        told: list[float] = []
        playout = Playout(CALL.lead_s, CALL.packet_s, 30.0, Told(told))
        playout.push(np.ones(SPEAKER_RATE_HZ, np.float32))
        while playout.take(1.0) is not None:
            pass
        wait(playout, 9.0)
        while playout.take(9.0) is not None:
            pass
        assert told == []


def test_an_engine_that_makes_sound_late_is_no_delay_of_the_sender() -> None:
    told: list[float] = []
    playout = Playout(CALL.lead_s, CALL.packet_s, lateness=Told(told))
    for at_s in (0.0, 0.5, 1.0):
        playout.push(np.ones(round(0.02 * SPEAKER_RATE_HZ), np.float32))
        while playout.take(at_s) is not None:
            pass
    assert playout.underruns == 2
    assert told == []
