"""When an answer is begun in a pause: later where that was mostly in vain, but never too late to lie ready."""

from __future__ import annotations

import pytest

from app.realtime.input.speculation import RESERVE, Speculation


def wasteful(takes_ms: float | None) -> Speculation:
    guesses = Speculation(200, takes_ms=takes_ms)
    for _ in range(20):
        guesses.settled(right=False)
    return guesses


@pytest.mark.parametrize(
    ("takes_ms", "begins_ms"),
    [(None, 500), (400, 200), (240, 200), (160, 300), (40, 450)],  # not known; it never fits; just; it does; well
)
def test_who_mostly_goes_on_is_answered_as_late_as_the_answer_allows(takes_ms: float | None, begins_ms: int) -> None:
    assert wasteful(takes_ms).pause_ms(500) == pytest.approx(begins_ms, abs=1)


def test_an_answer_lies_ready_when_the_turn_is_over() -> None:
    """A user who hesitates in every other pause: so it was begun 370 ms into the silence, whatever it took."""
    guesses = Speculation(200)
    for _ in range(50):
        for right in (False, True):
            guesses.settled(right)
            guesses.took(200)
            assert guesses.pause_ms(500) + guesses.takes_ms * RESERVE <= 500  # pyright: ignore[reportOptionalOperand]
    assert 200 < guesses.pause_ms(500) < 250


def test_a_slow_answer_counts_at_once_and_is_forgotten_slowly() -> None:
    guesses = Speculation(200)
    for ms in (100, 300):
        guesses.took(ms)
    assert guesses.takes_ms == 200
    guesses.took(100)
    assert guesses.takes_ms == 190


def test_without_guesses_answers_are_begun_when_the_turn_is_over() -> None:
    assert Speculation(0, takes_ms=10).pause_ms(500) == 500
    assert Speculation(200, takes_ms=10).pause_ms(200) == 200
