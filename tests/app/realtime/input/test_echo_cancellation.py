"""A session's echo cancellation: begins with the first echo, follows its delay, and leaves other clients alone."""

from __future__ import annotations

import numpy as np
import pytest

from app.realtime.input.echo_cancellation import FORGET, PEAK_DB, REACH, EchoCancellation
from app.realtime.input.playback_timeline import PlaybackTimeline
from app.realtime.ports import EchoCanceller
from engine.core import MIC_RATE_HZ, Pcm
from tests.app.realtime.input.echoes import PIECE, SubtractingCanceller, late, power, voice

PACKET = MIC_RATE_HZ // 10
DELAY = 2000


def exact() -> EchoCanceller:
    """Return a canceller of an echo as loud as the playback and without delay."""
    return SubtractingCanceller(1.0, 0)


def through(cancellation: EchoCancellation, microphone: Pcm, playback: Pcm, speech: bool = False) -> Pcm:
    """Play and hear in real time; the playback is announced in packets, a second ahead."""
    out: list[Pcm] = []
    announced = 0
    for at in range(0, len(microphone), PIECE):
        while announced < min(len(playback), at + MIC_RATE_HZ):
            cancellation.playing(playback[announced : announced + PACKET])
            announced += PACKET
        out.append(cancellation.process(microphone[at : at + PIECE])[speech])
    return np.concatenate(out)


def test_an_echo_is_cancelled_once_it_is_found() -> None:
    playback = voice(4)
    microphone = late(playback, DELAY)
    cancellation = EchoCancellation(SubtractingCanceller)
    heard = through(cancellation, microphone, playback)
    assert power(heard[MIC_RATE_HZ:]) < power(microphone[MIC_RATE_HZ:]) / 1000
    assert cancellation.gain_db == pytest.approx(-6, abs=1)
    assert cancellation.delay == pytest.approx(DELAY, abs=8)


def test_speech_recognition_has_a_canceller_of_its_own() -> None:
    playback = voice(2)
    cancellation = EchoCancellation(SubtractingCanceller, new_linear=lambda: SubtractingCanceller(0.0))
    heard = through(cancellation, late(playback, DELAY), playback, speech=True)
    assert np.array_equal(heard, late(playback, DELAY))


def test_a_delay_that_is_found_once_is_a_mistake() -> None:
    playback = voice(8)
    microphone = late(playback, DELAY)
    wrong = 4 * MIC_RATE_HZ
    microphone[wrong : wrong + MIC_RATE_HZ] = late(playback, 3 * DELAY)[wrong : wrong + MIC_RATE_HZ]
    made: list[EchoCanceller] = []

    def new() -> EchoCanceller:
        made.append(SubtractingCanceller())
        return made[-1]

    through(EchoCancellation(new), microphone, playback)
    assert len(made) == 1


def test_a_client_without_echo_is_left_alone() -> None:
    playback, microphone = voice(30), voice(30, seed=1)
    cancellation = EchoCancellation(SubtractingCanceller)
    assert np.array_equal(through(cancellation, microphone, playback), microphone)
    assert cancellation.gain_db is None
    assert cancellation.delay == 0


def test_what_a_clients_own_cancellation_leaves_is_left_alone() -> None:
    playback = voice(10, level=6000)
    microphone = late(playback, DELAY, gain=0.02)
    assert np.array_equal(through(EchoCancellation(SubtractingCanceller), microphone, playback), microphone)


def test_without_a_canceller_the_signal_is_the_same_object() -> None:
    pcm = voice(1)
    cancellation = EchoCancellation(None)
    cancellation.playing(pcm)
    turns, speech = cancellation.process(pcm)
    assert turns is speech is pcm


def test_always_begins_with_the_first_sample() -> None:
    cancellation = EchoCancellation(exact, always=True, new_linear=exact)
    pcm = voice(0.1)
    cancellation.playing(pcm)
    assert not cancellation.process(pcm)[0].any()


def test_a_jump_of_the_clock_or_the_network_is_followed() -> None:
    playback = voice(12)
    near, far = late(playback, DELAY), late(playback, DELAY + MIC_RATE_HZ * 6 // 10)
    microphone = np.concatenate([near[: 6 * MIC_RATE_HZ], far[6 * MIC_RATE_HZ :]])
    heard = through(EchoCancellation(SubtractingCanceller), microphone, playback)
    assert power(heard[9 * MIC_RATE_HZ :]) < power(microphone[9 * MIC_RATE_HZ :]) / 1000


@pytest.mark.parametrize(("echo_s", "silent_s"), [(0.7, 3), (4, 4)], ids=["at first", "no longer"])
def test_an_echo_that_is_not_there_all_the_time_is_not_taken_for_soft(echo_s: float, silent_s: float) -> None:
    """A guard that expected a soft echo would take what a browser leaves of a loud one for the user."""
    playback = voice(echo_s + silent_s)
    microphone = late(playback, DELAY)
    microphone[round(echo_s * MIC_RATE_HZ) :] = 0
    cancellation = EchoCancellation(SubtractingCanceller)
    through(cancellation, microphone, playback)
    assert cancellation.delay == pytest.approx(DELAY, abs=8)
    assert cancellation.gain_db == 0


def two_answers(moved: int) -> tuple[Pcm, Pcm, int]:
    """Return a microphone, the playback, and where the second answer begins. Its echo is ``moved`` samples later."""
    silence = np.zeros(2 * MIC_RATE_HZ, np.int16)
    first = np.concatenate([voice(6), silence])
    playback = np.concatenate([first, voice(2, seed=4)])
    echoes = late(playback, DELAY), late(playback, DELAY + moved)
    middle = len(first) - MIC_RATE_HZ
    return np.concatenate([echoes[0][:middle], echoes[1][middle:]]), playback, len(first)


@pytest.mark.parametrize("moved", [-150, 0, 150])
def test_an_answer_that_comes_later_or_earlier_unteaches_the_filter_nothing(moved: int) -> None:
    microphone, playback, second = two_answers(moved)
    heard = through(EchoCancellation(SubtractingCanceller), microphone, playback, speech=True)
    begins = second + DELAY + MIC_RATE_HZ * 8 // 10  # the voice begins after 0.5 s
    piece = slice(begins, begins + MIC_RATE_HZ // 5)
    assert power(heard[piece]) < power(microphone[piece]) / 1000


def test_the_echo_of_an_answer_counts_as_louder_until_its_delay_is_known() -> None:
    microphone, playback, second = two_answers(150)
    cancellation = EchoCancellation(SubtractingCanceller)
    gains_db: list[float | None] = []
    sounds = second + DELAY + int(np.flatnonzero(playback[second:])[0])
    for end in (second, sounds + PIECE, sounds + MIC_RATE_HZ // 2):
        heard = slice(cancellation.position, end)
        through(cancellation, microphone[heard], playback[heard])
        gains_db.append(cancellation.gain_db)
    before_db, begun_db, known_db = gains_db
    assert before_db is not None
    assert begun_db == pytest.approx(before_db + PEAK_DB, abs=0.1)
    assert known_db == pytest.approx(before_db, abs=1)


def test_a_clock_that_drifts_is_followed_to_a_part_of_a_sample() -> None:
    playback = voice(14)
    timeline = PlaybackTimeline(len(playback))
    parts: list[Pcm] = []
    for at in range(0, len(playback), PIECE):
        timeline.playing(playback[at : at + PIECE], at)
        parts.append(timeline.interpolated(at - DELAY + 5e-5 * at, PIECE) // 2)
    echo = np.concatenate(parts)
    heard = through(EchoCancellation(SubtractingCanceller), echo, playback)
    assert power(heard[10 * MIC_RATE_HZ :]) < power(echo[10 * MIC_RATE_HZ :]) / 50


def test_it_ends_after_a_minute_of_playback_without_echo() -> None:
    playback = voice(4 + 2 * FORGET / MIC_RATE_HZ)
    echo = late(playback, DELAY)
    noise = voice(len(playback) / MIC_RATE_HZ, seed=1)
    microphone = np.concatenate([echo[: 4 * MIC_RATE_HZ], noise[4 * MIC_RATE_HZ :]])
    cancellation = EchoCancellation(SubtractingCanceller)
    heard = through(cancellation, microphone, playback)
    assert np.array_equal(heard[-MIC_RATE_HZ:], microphone[-MIC_RATE_HZ:])
    assert cancellation.gain_db is None


def test_silent_playback_begins_nothing() -> None:
    microphone = voice(5)
    assert np.array_equal(
        through(EchoCancellation(SubtractingCanceller), microphone, np.zeros_like(microphone)), microphone
    )


def test_flushed_playback_is_no_reference() -> None:
    """Playback that the listener did not hear must not be subtracted."""
    playback = voice(2)
    cancellation = EchoCancellation(exact, always=True, new_linear=exact)
    cancellation.playing(playback)
    cancellation.process(playback[:MIC_RATE_HZ])
    cancellation.stopped()
    user = voice(1, seed=1)
    assert np.array_equal(cancellation.process(user)[0], user)


def test_a_pause_of_the_playback_moves_the_rest() -> None:
    playback = voice(2)
    cancellation = EchoCancellation(exact, always=True, new_linear=exact)
    cancellation.playing(playback)
    cancellation.process(playback[:MIC_RATE_HZ])
    cancellation.paused()
    user = voice(1, seed=1)
    assert np.array_equal(cancellation.process(user)[0], user)
    cancellation.resumed()
    assert not cancellation.process(playback[MIC_RATE_HZ:])[0].any()


def test_memory_is_bounded() -> None:
    cancellation = EchoCancellation(SubtractingCanceller)
    for _ in range(50):
        cancellation.playing(voice(1))
        cancellation.process(voice(1, seed=1))
    assert len(cancellation.playback._played) <= REACH + 8 * MIC_RATE_HZ
    assert len(cancellation._recent) <= 2 * MIC_RATE_HZ
