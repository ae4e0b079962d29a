"""Workers are killed and stopped at random moments under load: others notice nothing, the affected hear no break.

Everything random follows from a seed, which a failure names. The default suite has a short version without the bars of
time, which a busy machine could not keep; `benchmarks/losses.py` prints the figures.
"""

from __future__ import annotations

import signal

import numpy as np
import pytest

from benchmarks.losses import BENCHES, WORDS, Heard, expected_sound, storm, wrong


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_lost_workers_cost_nobody_a_word(sign: int) -> None:
    answers, losses = await storm(1, 1, sign)
    assert len(losses) == 1
    assert not wrong(answers)


def test_the_check_of_words_sees_a_lost_and_a_repeated_frame() -> None:
    words = [f"7x0x{n}" for n in range(WORDS)]
    good = expected_sound(words).astype(np.float32)
    sounds = {
        "good": good,
        "lost": np.delete(good, range(9600, 10560)),
        "twice": np.insert(good, 9600, good[8640:9600]),
    }
    right = {}
    for name, sound in sounds.items():
        heard = Heard("7x0-0", words, text=" ".join(words))
        heard.player.receive(0.0, sound)
        right[name] = heard.right
    assert right == {"good": True, "lost": False, "twice": False}
    assert not Heard("7x0-0", words, text=" ".join(words[1:])).right


def test_only_who_lost_two_replicas_may_end_with_that_error() -> None:
    told = "the talker replica talker@a#1 was lost, the second one during this request; try again"
    twice, once = (Heard("7x0-0", ["a", "b"], error=told, hits=hits) for hits in (2, 1))
    other = Heard("7x0-0", ["a", "b"], error="no progress for 10 s", hits=2)
    assert [wrong([heard]) for heard in (twice, once, other)] == [0, 1, 1]


@pytest.mark.chaos
@pytest.mark.parametrize("name", BENCHES)
async def test_every_bar_of_a_loss_is_kept(name: str) -> None:
    """A hundred kills: noticed in 100 ms, no underrun of the others, half a second's break at most; and its control."""
    assert await BENCHES[name](False)
