"""The judgement of a pause's sound: asked once, dropped when speech resumes, and not waited for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from app.realtime.inference_thread import THREADS, InferenceThread
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.input.pause_sound import DEADLINE_S, PauseSound

PCM = np.zeros(160, np.int16)


class Model(SentenceEndOfTurn):
    """Listens until it is let go."""

    window_s = 8.0

    def __init__(self) -> None:
        self.asked = 0
        self.listening = threading.Event()
        self.may_answer = threading.Event()
        self.error: Exception | None = None

    def listen(self, pcm: np.ndarray) -> float:
        self.asked += 1
        self.listening.set()
        assert self.may_answer.wait(10)
        if self.error is not None:
            raise self.error
        return 0.9


class Pause:
    """A session's pause, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.model = Model()
        self.thread = InferenceThread()
        self.now_s = 0.0
        self.sound = PauseSound(self.thread, lambda: self.now_s)

    def follow(self, pause_from: int | None) -> None:
        self.sound.follow(self.model, pause_from, lambda: PCM)

    def answered(self) -> None:
        """Let the model answer, and wait until all threads are free again."""
        self.model.may_answer.set()
        all_free = threading.Barrier(THREADS)
        for one in [self.thread._thread.submit(all_free.wait, 10) for _ in range(THREADS)]:
            one.result(10)


@pytest.fixture
def pause() -> Iterator[Pause]:
    one = Pause()
    yield one
    one.model.may_answer.set()
    one.thread.close()


def test_a_pause_is_judged_once(pause: Pause) -> None:
    pause.follow(None)
    assert pause.sound.read() == (None, False)
    for _ in range(3):
        pause.follow(100)
    assert pause.sound.read() == (None, True)
    pause.answered()
    assert pause.sound.read() == (0.9, False)
    pause.follow(100)
    assert pause.sound.read() == (0.9, False)
    assert pause.model.asked == 1


def test_a_judgement_is_dropped_when_speech_resumes(pause: Pause) -> None:
    pause.follow(100)
    pause.follow(None)
    assert pause.sound.read() == (None, False)
    pause.answered()
    assert pause.sound.read() == (None, False)


def test_what_still_waits_for_a_thread_is_never_run_once_speech_resumes(pause: Pause) -> None:
    for _ in range(THREADS):
        pause.model.listening.clear()
        PauseSound(pause.thread, lambda: pause.now_s).follow(pause.model, 1, lambda: PCM)
        assert pause.model.listening.wait(10)
    pause.follow(100)
    pause.follow(None)
    pause.answered()
    assert pause.model.asked == THREADS


def test_a_slow_model_is_not_waited_for_and_this_is_logged_once(pause: Pause, caplog: pytest.LogCaptureFixture) -> None:
    for pause_from in (100, 200):
        pause.follow(pause_from)
        pause.now_s += DEADLINE_S + 0.001
        assert pause.sound.read() == (None, False)
    pause.answered()
    assert pause.sound.read() == (0.9, False), "it still counts"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "took longer than 150 ms" in caplog.text


def test_a_model_that_fails_leaves_the_decision_to_the_silence(pause: Pause, caplog: pytest.LogCaptureFixture) -> None:
    pause.model.error = ValueError("broken")
    pause.follow(100)
    pause.answered()
    assert pause.sound.read() == (None, False)
    assert "failed (broken)" in caplog.text


def test_a_pause_after_the_server_has_closed_is_not_judged(pause: Pause) -> None:
    pause.thread.close()
    pause.follow(100)
    assert pause.sound.read() == (None, False)


def test_a_model_is_warmed_up_once_and_one_that_does_not_listen_never(pause: Pause) -> None:
    pause.thread.warm_up(SentenceEndOfTurn())
    for _ in range(2):
        pause.thread.warm_up(pause.model)
    pause.answered()
    assert pause.model.asked == 1
