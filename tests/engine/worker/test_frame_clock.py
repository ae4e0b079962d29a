"""The clock of a duplex session: sound that is late, missing, doubled or too fast, and a device that is too slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import Duplex, DuplexCounts, Pcm
from engine.worker.frame_clock import CUSHION, GRACE_S, DuplexFrame, FrameClock

DUPLEX = Duplex()
FRAME_S, SIZE = DUPLEX.frame_s, DUPLEX.frame_samples
PACKET_S, PACKET = 0.02, 480
Arrivals = Sequence[tuple[float, Pcm]]
"""When each piece of sound arrives, in seconds, in order."""


class Simulated:
    """One session, whose steps take ``step_s``. ``began_s`` is when each frame stepped."""

    def __init__(self, step_s: float = 0.01, opened_s: float = 0.0) -> None:
        self.counts = DuplexCounts()
        self.clock = FrameClock(DUPLEX, self.counts, opened_s)
        self.step_s = step_s
        self.now_s = 0.0
        self.frames: list[DuplexFrame] = []
        self.began_s: list[float] = []
        self.longest = 0

    def run(self, arrivals: Arrivals, until_s: float) -> Simulated:
        left = list(arrivals)
        while self.now_s < until_s:
            while left and left[0][0] <= self.now_s and not self.clock.full:
                self.clock.feed(left.pop(0)[1])
                self.longest = max(self.longest, len(self.clock._sound))
            wait_s = self.clock.wait_s(self.now_s)
            if wait_s <= 0:
                self._step()
            else:
                arrival_s = left[0][0] if left and not self.clock.full else math.inf
                self.now_s = min(max(self.now_s + wait_s, self.now_s + 1e-9), max(arrival_s, self.now_s), until_s)
        return self

    def _step(self) -> None:
        frame = self.clock.take(self.now_s)
        self.frames.append(frame)
        self.began_s.append(self.now_s)
        self.now_s += self.step_s
        self.counts.late += self.clock.late(frame, self.now_s)

    @property
    def heard(self) -> Pcm:
        """All that the stage heard, without what is silent."""
        waves = np.concatenate([frame.wave for frame in self.frames])
        return np.rint(waves[waves != 0] * 32768).astype(np.int16)


def sound(seconds: float) -> Pcm:
    """Samples that are all different from 0, and rise so that each can be told from its neighbours."""
    return (np.arange(round(seconds * DUPLEX.rate_hz)) % 30000 + 1).astype(np.int16)


def packets(pcm: Pcm, from_s: float = 0.0, pace: float = 1.0) -> list[tuple[float, Pcm]]:
    """What a microphone sends: packets of 20 ms, each when its last sample is there."""
    pieces = [pcm[at : at + PACKET] for at in range(0, len(pcm), PACKET)]
    return [(from_s + (n + 1) * PACKET_S / pace, piece) for n, piece in enumerate(pieces)]


def test_sound_in_time_is_heard_whole_and_at_once() -> None:
    said = sound(5)
    session = Simulated().run(packets(said), 5.3)
    assert session.heard.tolist() == said.tolist()[: len(session.heard)]
    assert len(said) - len(session.heard) < 2 * SIZE
    assert session.counts == DuplexCounts(frames=len(session.frames), concealed=session.counts.concealed)
    assert session.counts.concealed <= 3  # after the end of the sound
    assert [frame.number for frame in session.frames] == list(range(len(session.frames)))
    for n, began_s in enumerate(session.began_s[:60]):
        assert 0 <= began_s - (n + 1) * FRAME_S <= 0.021  # a due time is a multiple of 20 ms


@pytest.mark.parametrize("late_s", [0.01, 0.035])
def test_packets_that_come_unevenly_are_heard_whole(late_s: float) -> None:
    said = sound(8)
    arrivals = packets(said)
    late = list(accumulate((at_s + late_s * (n % 7 == 3) for n, (at_s, _) in enumerate(arrivals)), max))
    session = Simulated().run([(at_s, piece) for at_s, (_, piece) in zip(late, arrivals, strict=True)], 8.0)
    assert session.counts.concealed == 0
    assert session.heard.tolist() == said.tolist()[: len(session.heard)]
    assert len(said) - len(session.heard) <= 3 * SIZE


def test_a_user_who_stops_sending_is_silent_and_heard_whole_afterwards() -> None:
    first, second = sound(2), sound(3)
    session = Simulated().run([*packets(first), *packets(second, 6.0)], 10.0)
    assert session.heard.tolist() == [*first.tolist(), *second.tolist()]
    assert session.counts.dropped == 0
    assert 48 <= session.counts.concealed <= 64
    gaps = np.diff(session.began_s)
    assert gaps.max() <= FRAME_S + GRACE_S + 0.021
    assert abs(len(session.frames) - 10 / FRAME_S) <= 3


def test_sound_that_the_network_delays_and_sends_at_once_is_dropped() -> None:
    said = sound(6)
    arrivals = [(at_s if at_s < 2 else max(at_s, 3.0), piece) for at_s, piece in packets(said)]
    session = Simulated().run(arrivals, 6.01)
    assert 9 <= session.counts.dropped <= 13
    assert session.counts.concealed >= session.counts.dropped
    assert len(session.clock._sound) <= (CUSHION + 1) * SIZE  # the delay that stays
    assert session.heard.tolist()[-SIZE:] == said.tolist()[len(said) - len(session.clock._sound) - SIZE :][:SIZE]


def test_a_recording_that_is_sent_at_once_is_heard_at_the_pace_of_speech() -> None:
    said = sound(10)
    session = Simulated().run([(0.0, piece) for _, piece in packets(said)], 10.2)
    assert session.heard.tolist() == said.tolist()
    assert session.counts.dropped == 0
    assert session.longest <= 2 * DUPLEX.rate_hz + PACKET
    assert np.diff(session.began_s).min() >= FRAME_S - 0.021


def test_sound_at_double_speed_fills_no_memory() -> None:
    session = Simulated().run(packets(sound(60), pace=2.0), 30.0)
    assert session.longest <= 2 * DUPLEX.rate_hz + PACKET


@pytest.mark.parametrize(("resumes_s", "recording_s"), [(3.0, 5.0), (2.0, 7.0)])
def test_a_recording_is_not_late_after_speech_in_time_or_a_long_silence(resumes_s: float, recording_s: float) -> None:
    first, second, recording = sound(2), sound(2), sound(3)
    at_once = [(recording_s, piece) for _, piece in packets(recording)]
    session = Simulated().run([*packets(first), *packets(second, resumes_s), *at_once], 11.0)
    assert session.counts.dropped == 0
    assert session.heard.tolist() == [*first.tolist(), *second.tolist(), *recording.tolist()]


@pytest.mark.parametrize("pace", [0.995, 1.005])
def test_a_microphone_with_another_clock_stays_in_time(pace: float) -> None:
    said = sound(120)
    session = Simulated().run(packets(said, pace=pace), 120 / pace)
    assert session.counts.concealed == session.counts.dropped == session.counts.skipped == 0
    assert session.longest <= 3 * SIZE
    assert session.heard.tolist() == said.tolist()[: len(session.heard)]


def test_a_device_that_is_too_slow_skips_frames_and_stays_in_time() -> None:
    session = Simulated(step_s=0.1).run(packets(sound(8)), 8.0)
    assert session.counts.skipped == pytest.approx(20, abs=3)
    assert session.counts.late > 50
    for frame, began_s in zip(session.frames, session.began_s, strict=True):
        assert began_s - frame.due_s < FRAME_S
        assert frame.due_s == pytest.approx((frame.number + 1) * FRAME_S, abs=0.041)


def test_after_a_long_stop_of_the_process_it_goes_on_at_once() -> None:
    session = Simulated().run(packets(sound(2)), 2.0)
    before = len(session.frames)
    session.now_s += 100
    session.run(packets(sound(2), session.now_s), session.now_s + 1)
    assert session.counts.skipped == pytest.approx(100 / FRAME_S, abs=1)
    assert len(session.frames) - before <= 14


def test_after_a_stop_in_which_a_frame_was_awaited_the_user_is_not_heard_late() -> None:
    """The sound of the stop arrives at once, together with the late frame before it."""
    arrivals = packets(np.ones(7 * DUPLEX.rate_hz, np.int16))
    session = Simulated().run([one for one in arrivals if one[0] <= 2.0], 2.0)
    while not session.clock._awaited:
        session.run([], session.now_s + 0.01)
    session.now_s += 3
    session.run([(max(at_s, session.now_s), pcm) for at_s, pcm in arrivals if at_s > 2.0], 7.0)
    assert session.counts.skipped + session.counts.concealed == pytest.approx(3 / FRAME_S, abs=2)
    assert len(session.clock._sound) <= (CUSHION + 1) * SIZE


def test_at_the_end_the_rest_is_heard() -> None:
    said = sound(0.25)
    session = Simulated()
    session.clock.feed(said)
    session.clock.ended = True
    assert not session.clock.over
    session.run([], 0.33)
    assert session.heard.tolist() == said.tolist()
    assert session.clock.over
    assert len(session.frames) == 4
    assert session.counts == DuplexCounts(frames=4)


def test_what_is_said_while_the_prompt_is_computed_is_late() -> None:
    session = Simulated(opened_s=-1.0)
    session.clock.feed(sound(1))
    session.run([], 0.01)
    assert len(session.clock._sound) == CUSHION * SIZE
    assert session.counts.dropped == pytest.approx(1 / FRAME_S - CUSHION, abs=1)


@pytest.mark.parametrize("gap_s", [0.5, 0.25, 0.16, 0.08])
def test_a_sample_now_and_then_does_not_slow_the_model(gap_s: float) -> None:
    arrivals = [(n * gap_s, np.ones(1, np.int16)) for n in range(round(10 / gap_s))]
    session = Simulated(0.0).run(arrivals, 10.0)
    assert session.counts.frames == pytest.approx(10 / FRAME_S, abs=1)


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 6000)), max_size=60),
    st.sampled_from([0.0, 0.03, 0.07, 0.15]),
)
def test_whatever_comes_the_session_goes_on_in_bounded_memory(pieces: list[tuple[float, int]], step_s: float) -> None:
    arrivals: list[tuple[float, Pcm]] = []
    at_s = 0.0
    for gap_s, samples in pieces:
        at_s += gap_s
        arrivals.append((at_s, np.ones(samples, np.int16)))
    session = Simulated(step_s).run(arrivals, 10.0)
    counts = session.counts
    assert counts.frames == len(session.frames)
    moved = len(pieces) * GRACE_S / FRAME_S  # sound that comes late or stops moves the clock
    assert 10 / FRAME_S - moved - 2 <= counts.frames + counts.skipped <= 10 / FRAME_S + 1
    numbers = [frame.number for frame in session.frames]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] + 1 == counts.frames + counts.skipped
    assert session.longest <= 2 * DUPLEX.rate_hz + 6000
    if step_s < FRAME_S:
        assert counts.skipped == 0
