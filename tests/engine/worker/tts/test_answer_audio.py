"""The sound of clauses of which nobody knows how long they get: marks by their letters, right at each clause's end."""

from __future__ import annotations

import numpy as np

from engine.chunk import Audio
from engine.core import SPEAKER_RATE_HZ
from engine.worker.tts.answer_audio import LETTER_S, AnswerSound
from engine.worker.tts.clauses import Clause

NOTHING = np.empty(0, np.float32)


def clause(text: str, start: int = 0) -> Clause:
    return Clause(text, tuple(range(start, start + len(text))))


def wave(samples: int) -> np.ndarray:
    return np.sin(np.arange(samples) / 9).astype(np.float32) / 2


def said(sound: AnswerSound, what: Clause, *pieces: np.ndarray, rate_hz: int = SPEAKER_RATE_HZ) -> list[Audio]:
    sound.begin(what)
    return [audio for piece in pieces for audio in sound.push(piece, rate_hz)] + sound.end()


def whole(found: list[Audio]) -> np.ndarray:
    return np.concatenate([audio.wave for audio in found])


def test_the_sound_is_what_came_and_the_last_mark_is_its_end() -> None:
    full = wave(24_000)
    found = said(AnswerSound(1 << 30), clause("this is a test of it. "), full[:7000], NOTHING, full[7000:])
    assert np.array_equal(whole(found), full)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (24_000, 22)


def test_an_empty_piece_is_no_sound() -> None:
    sound = AnswerSound(1 << 30)
    assert said(sound, clause("yes"), NOTHING) == []
    assert (sound.sounded, sound.lettered) == (False, True)


def test_it_learns_how_fast_the_voice_speaks_and_goes_on_with_that_elsewhere() -> None:
    sound = AnswerSound(1 << 30)
    said(sound, clause("one two "), wave(round(8 * 2 * LETTER_S * SPEAKER_RATE_HZ)))
    assert abs(sound.letter_s - 2 * LETTER_S) < 1e-3
    assert sound.samples == round(8 * 2 * LETTER_S * SPEAKER_RATE_HZ)
    rest = [wave(12_000), wave(12_000)]
    here = said(sound, clause("three four ", 8), *rest)
    again = AnswerSound(1 << 30, 2 * LETTER_S, round(8 * 2 * LETTER_S * SPEAKER_RATE_HZ))
    there = said(again, clause("three four ", 8), *rest)
    pairs = zip(here, there, strict=True)
    assert all(abs(a - b) <= 2 for one, other in pairs for (a, _), (b, _) in zip(one.marks, other.marks, strict=True))


def test_clauses_of_other_rates_are_one_answer_that_ends_at_its_longest() -> None:
    sound = AnswerSound(SPEAKER_RATE_HZ)
    first = said(sound, clause("one "), wave(8000), rate_hz=16_000)
    assert len(whole(first)) == SPEAKER_RATE_HZ // 2
    assert len(whole([*first, *said(sound, clause("two", 4), wave(48_000), rate_hz=48_000)])) == SPEAKER_RATE_HZ
    assert sound.full
