"""The gate prefers the user's undistorted voice, and the suppressor's silence while there is only echo."""

from __future__ import annotations

import numpy as np
import pytest

from app.realtime.input.echo_gate import EchoGate
from tests.app.realtime.input.echoes import band, power, voice


def test_a_user_whom_the_suppressor_dampens_is_passed_on_undistorted() -> None:
    user = voice(2)
    chosen = EchoGate().choose(user, user, (user // 3).astype(np.int16), False)
    assert power(chosen) > 0.95 * power(user)


@pytest.mark.parametrize("aligned", [False, True])
def test_a_user_whom_the_suppressor_removes_is_passed_on_if_the_filter_is_aligned(aligned: bool) -> None:
    user, echo = voice(2), voice(2, seed=1)
    gate = EchoGate()
    gate.choose(echo, echo // 20, np.zeros_like(echo), aligned)
    chosen = gate.choose(user + echo, user, np.zeros_like(user), aligned)
    assert (power(chosen) > 0.9 * power(user)) is aligned


@pytest.mark.parametrize("aligned", [False, True])
def test_an_echo_that_the_suppressor_removes_is_removed(aligned: bool) -> None:
    echo = voice(2)
    chosen = EchoGate().choose(echo, (echo // 5).astype(np.int16), (echo // 100).astype(np.int16), aligned)
    assert power(chosen) < 0.001 * power(echo)


def test_a_filter_that_has_not_learned_the_room_lets_no_echo_through() -> None:
    echo = voice(2)
    assert not EchoGate().choose(echo, echo // 2, np.zeros_like(echo), True).any()


def test_a_filter_lets_no_echo_through_at_frequencies_that_it_has_not_learned() -> None:
    """The first sharp sound of an answer may come seconds after its beginning."""
    gate, low = EchoGate(), band(voice(2), 200, 2000)
    gate.choose(low, low // 20, np.zeros_like(low), True)
    sharp = band(voice(0.3), 4000, 7000)
    assert not gate.choose(sharp, sharp // 2, np.zeros_like(sharp), True).any()
    user = low + band(voice(2, seed=1), 200, 2000)
    chosen = gate.choose(user, user - low, np.zeros_like(user), True)
    assert power(chosen) > 0.9 * power(user - low)


def test_pieces_of_any_size_are_accepted() -> None:
    gate, pcm = EchoGate(), voice(0.1)
    for size in (0, 1, 159, 161, 2560):
        assert len(gate.choose(pcm[:size], pcm[:size], pcm[:size], True)) == len(pcm[:size])
