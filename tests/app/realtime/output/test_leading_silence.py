"""Where an answer begins to sound: what is left out before its first word, however the engine cuts it."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.realtime.output.leading_silence import BLOCK, MOST, LeadingSilence
from app.realtime.output.playout import Playout
from engine.core import Wave


def sound(*blocks: float) -> Wave:
    """Blocks of these levels (RMS)."""
    return np.repeat(np.array(blocks, np.float32), BLOCK)


def heard(wave: Wave, *cuts: int) -> tuple[Wave, int]:
    onset = LeadingSilence()
    return np.concatenate([onset.feed(piece) for piece in np.split(wave, cuts)]), onset.skipped_samples


@pytest.mark.parametrize("silent", range(MOST + 3))
def test_silence_before_the_first_word_is_left_out_up_to_a_bound(silent: int) -> None:
    wave = sound(*[0.001] * silent, 0.1, *[0.0] * 20)
    played, skipped = heard(wave)
    assert skipped == min(silent, MOST) * BLOCK
    assert np.array_equal(played, wave[skipped:]), "nothing else is missing"


def test_a_soft_beginning_is_kept() -> None:
    assert heard(sound(0.004, 0.1))[1] == 0  # −48 dBFS


def test_an_answer_of_silence_is_not_held_up() -> None:
    onset = LeadingSilence()
    assert [len(onset.feed(sound(*[0.0] * 4))) // BLOCK for _ in range(3)] == [0, 2, 4]


@given(st.lists(st.sampled_from([0.0, 0.001, 0.1]), max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_it_does_not_depend_on_how_the_engine_cuts(levels: list[float], cuts: list[int]) -> None:
    wave = sound(*levels)
    whole, cut = heard(wave), heard(wave, *(at * BLOCK for at in sorted(cuts)))
    assert np.array_equal(whole[0], cut[0])
    assert whole[1] == cut[1]


def test_what_is_left_out_counts_as_produced_but_is_never_sent() -> None:
    playout = Playout()
    playout.push(sound(0, 0, 0, 0))
    assert playout.due_in_s(0.0) is None, "there is nothing to be heard yet"
    playout.push(sound(0, *[0.1] * 6))
    assert (playout.produced_samples, playout.skipped_samples) == (11 * BLOCK, 5 * BLOCK)
    packet = playout.take(0.0)
    assert packet is not None
    assert np.array_equal(packet.samples, sound(*[0.1] * 6))


def test_a_player_starts_with_a_reserve_but_no_later_than_the_silence_would_have_lasted() -> None:
    """He who starts with 20 ms of sound runs dry where the next chunk takes 21."""
    playout = Playout()
    playout.push(sound(0, 0, 0, 0))
    assert playout.take(10.0) is None
    playout.push(sound(0, 0, 0.1, 0.1))
    assert playout.take(10.005) is None
    assert playout.due_in_s(10.005) == pytest.approx(0.055)
    waits, comes = deepcopy(playout), playout
    assert waits.take(10.0601) is not None, "he would be hearing it by now"
    comes.push(sound(*[0.1] * 4))
    assert comes.take(10.02) is not None, "there is enough"
    assert comes.take(10.02) is not None


def test_an_answer_that_is_over_does_not_wait_for_more() -> None:
    playout = Playout()
    playout.push(sound(0, 0, 0.1))
    assert playout.take(0.0) is None
    playout.end()
    assert playout.take(0.0) is not None


def test_an_answer_that_begins_with_sound_does_not_wait() -> None:
    playout = Playout()
    playout.push(sound(0.1))
    assert playout.take(0.0) is not None
