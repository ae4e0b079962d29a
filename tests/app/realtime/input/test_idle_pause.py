"""The pause of an idle session, by the microphone's samples."""

from __future__ import annotations

from app.realtime.input.idle_pause import IdlePause
from app.realtime.ports import IdlePolicy
from engine import MIC_RATE_HZ

S = MIC_RATE_HZ


def test_a_silence_begins_it_once_and_anything_ends_it() -> None:
    idle = IdlePause(IdlePolicy(timeout_s=2, wake_threshold=0.8))
    assert not idle.falls_asleep(2 * S - 1, speaks=False)
    assert idle.wake_threshold is None
    assert idle.falls_asleep(2 * S, speaks=False)
    assert not idle.falls_asleep(9 * S, speaks=False), "it is paused already"
    assert idle.wake_threshold == 0.8
    assert idle.wakes()
    assert not idle.wakes()
    assert idle.wake_threshold is None


def test_the_user_and_an_answer_are_no_silence() -> None:
    idle = IdlePause(IdlePolicy(timeout_s=2))
    assert not idle.falls_asleep(3 * S, speaks=True)
    assert not idle.falls_asleep(4 * S, speaks=False)
    idle.response_started()
    assert not idle.falls_asleep(60 * S, speaks=False)
    idle.response_ended(heard_at=61 * S)
    assert not idle.falls_asleep(60 * S, speaks=False)
    assert not idle.falls_asleep(62 * S, speaks=False)
    assert idle.falls_asleep(63 * S, speaks=False)


def test_without_a_policy_it_never_begins() -> None:
    assert not IdlePause(None).falls_asleep(10**9, speaks=False)
