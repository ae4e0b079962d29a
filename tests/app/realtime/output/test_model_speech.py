"""Where a duplex model speaks, by its audio and words."""

from __future__ import annotations

import numpy as np

from app.realtime.output.model_speech import END_S, ModelSpeech

FRAME_S = 0.08
QUIET = np.full(1920, 0.0005, np.float32)
LOUD = np.full(1920, 0.1, np.float32)


def test_a_word_begins_speech_at_once() -> None:
    speech = ModelSpeech()
    speech.audio(QUIET)
    assert not speech.speaking
    speech.word()
    assert speech.speaking


def test_two_loud_frames_begin_speech_and_a_click_does_not() -> None:
    speech = ModelSpeech()
    for wave in (LOUD, QUIET, LOUD):
        speech.audio(wave)
        assert not speech.speaking
    speech.audio(LOUD)
    assert speech.speaking


def test_silence_ends_speech_only_after_a_while() -> None:
    speech = ModelSpeech()
    speech.word()
    frames = 0
    while speech.speaking:
        speech.audio(QUIET)
        frames += 1
    assert frames == round(END_S / FRAME_S)


def test_a_word_or_sound_in_the_pause_continues_speech() -> None:
    speech = ModelSpeech()
    speech.word()
    for n in range(40):
        speech.audio(LOUD if n % 9 == 8 else QUIET)
        assert speech.speaking
    for n in range(40):
        if n % 9 == 0:
            speech.word()
        speech.audio(QUIET)
        assert speech.speaking


def test_an_empty_frame_is_silence() -> None:
    speech = ModelSpeech()
    speech.audio(np.zeros(0, np.float32))
    assert not speech.speaking
