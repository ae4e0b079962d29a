"""The gate prefers the user's undistorted voice, and the suppressor's silence while there is only echo."""

from __future__ import annotations

import numpy as np

from app.realtime.input.echo_gate import EchoGate
from tests.app.realtime.input.echoes import power, voice


def test_a_user_whom_the_suppressor_dampens_is_passed_on_undistorted() -> None:
    user = voice(2)
    chosen = EchoGate().choose(user, (user // 3).astype(np.int16))
    assert power(chosen) > 0.95 * power(user)


def test_an_echo_that_the_suppressor_removes_is_removed() -> None:
    echo = voice(2)
    chosen = EchoGate().choose(echo, (echo // 20).astype(np.int16))
    assert power(chosen) < 0.01 * power(echo)


def test_pieces_of_any_size_are_accepted() -> None:
    gate, pcm = EchoGate(), voice(0.1)
    for size in (0, 1, 159, 161, 2560):
        assert len(gate.choose(pcm[:size], pcm[:size])) == len(pcm[:size])
