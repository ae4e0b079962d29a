"""The stream of a Live session, without a clock of its own: how far it is ahead, and where its words are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.live.sound import FRAME_S, PROFILE
from app.live.timeline import LiveTranscript, OutputTimeline, TimedText
from app.realtime.output.playout import Playout

AHEAD_S = 0.05 + 1e-9


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 40)), max_size=12))
def test_the_stream_is_at_most_50_ms_ahead(answers: list[tuple[int, int]]) -> None:
    """Answers of some length (10 ms), each begun so long (10 ms) after the one before it was heard."""
    clock = Clock()
    timeline = OutputTimeline(clock)
    for length, pause in answers:
        clock.now_s += pause / 100
        playout = Playout(PROFILE.lead_s, PROFILE.packet_s)
        playout.push(np.ones(length * 240, np.float32))
        playout.end()
        while not playout.drained:
            while packet := playout.take(clock.now_s):
                timeline.add(len(packet.samples))
                assert timeline.ahead_s <= AHEAD_S
            clock.now_s += 0.01
        clock.now_s += playout.unplayed_s(clock.now_s)  # an answer of this profile ends when it was heard
    clock.now_s += 1.0
    assert timeline.ahead_s <= -FRAME_S


def test_a_word_is_told_with_its_sound_and_not_before() -> None:
    spoken = LiveTranscript("one two three", [(100.0, 4), (200.0, 8), (300.0, 13)], begun=True)
    assert spoken.played(1000.0, 1090.0) == []
    assert spoken.played(1090.0, 1210.0) == [TimedText(" one ", 1000, 1100), TimedText("two ", 1100, 1200)]
    assert spoken.played(1210.0, 1310.0) == [TimedText("three", 1200, 1300)]
    assert spoken.end() == []


def test_letters_make_words() -> None:
    spoken = LiveTranscript("it is so", [(10.0 * i, i) for i in range(1, 9)])
    told = [one for at in range(8) for one in spoken.played(10.0 * at, 10.0 * at + 10.0)]
    assert told == [TimedText("it ", 0, 20), TimedText("is ", 20, 50), TimedText("so", 50, 80)]


def test_words_without_marks_are_told_at_the_end() -> None:
    spoken = LiveTranscript("one two")
    assert spoken.played(40.0, 240.0) == []
    assert spoken.end() == [TimedText("one two", 40, 240)]


def test_a_stream_that_is_not_filled_jumps_to_the_present() -> None:
    clock = Clock()
    timeline = OutputTimeline(clock, filled=False)
    clock.now_s = 2.0
    assert timeline.add(2400) == (2000.0, 2100.0)
    assert timeline.add(2400) == (2100.0, 2200.0)
