"""nano's own tools: what a call says, alone and after what was said before."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.models.nano import own
from engine.worker.models.nano.own import FACTS, NOTHING_SAID, View, answer
from engine.worker.models.nano.seeing import NO_PICTURE

SATURDAY = datetime(2026, 11, 21, 10, 42)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("calc 12 plus 30", "12 plus 30 is 42."),
        ("calc 12 minus 30", "12 minus 30 is minus 18."),
        ("calc 12 times 34", "12 times 34 is 408."),
        ("calc 2 plus 3 times 4", "2 plus 3 times 4 is 14."),
        ("calc 9 minus 3 plus 4", "9 minus 3 plus 4 is 10."),
        ("calc 5", "5 is 5."),
        ("calc 12 plus", own.NO_NUMBER),
        ("calc plus", own.NO_NUMBER),
        ("calc", own.NO_NUMBER),
        ("calc it plus 3", own.NO_NUMBER),
        ("calc banana plus 3", own.NO_NUMBER),
        (f"calc {10**13} plus 1", own.TOO_LONG),
        (f"calc {10**12} times 2", own.TOO_LONG),
        (f"calc {'9' * 39} plus 1", own.TOO_LONG),
        (f"calc {'9' * 4000} plus 1", own.NO_NUMBER),
        ("count 3", "1, 2, 3."),
        ("count down 3", "3, 2, 1."),
        ("count 101", own.TOO_FAR),
        ("count 0", own.TOO_FAR),
        ("count", "Up to which number?"),
        ("count banana", "Up to which number?"),
        ("next after monday", "After Monday comes Tuesday."),
        ("next before monday", "Before Monday comes Sunday."),
        ("next after december", "After December comes January."),
        ("next after 41", "After 41 comes 42."),
        ("next before 0", "Before 0 comes minus 1."),
        ("next friday", "After Friday comes Saturday."),
        ("next after", own.NO_DAY),
        ("next after banana", own.NO_DAY),
        ("spell bee", "b, e, e"),
        ("spell r2d2", "r, 2, d, 2"),
        ("spell", own.NO_WORD),
        ("again", NOTHING_SAID),
        ("remember name anna", "Nice to meet you, Anna."),
        ("remember color red", "Okay. Your favorite color is red."),
        ("remember city new york", "Okay. You live in New York."),
        ("remember name", "Okay."),
        ("remember", "Okay."),
        ("recall name", "I don't know your name yet."),
        ("recall", "I don't know your name yet."),
        ("greet", "Hello! What can I do for you?"),
        ("get_time", "It is 10:42."),
        ("get_date", "It is Saturday, November 21, 2026."),
        ("look describe", NO_PICTURE),
        ("tell", "Done."),
    ],
)
def test_a_call_alone(call: str, said: str) -> None:
    assert answer(call, View(now=lambda: SATURDAY)) == said


@pytest.mark.parametrize(
    ("before", "call", "said"),
    [
        ("12 plus 30 is 42.", "calc it plus 8", "42 plus 8 is 50."),
        ("12 plus 30 is 42.", "calc it minus 50", "42 minus 50 is minus 8."),
        ("12 plus 30 is 42.", "calc minus", "12 minus 30 is minus 18."),
        ("12 plus 30 is 42.", "calc swap 30 21", "12 plus 21 is 33."),
        ("12 plus 30 is 42.", "calc swap 12 21", "21 plus 30 is 51."),
        ("12 plus 30 is 42.", "calc swap 99 21", own.NO_NUMBER),
        ("12 minus 30 is minus 18.", "calc it plus 5", "minus 18 plus 5 is minus 13."),
        ("minus 18 plus 5 is minus 13.", "calc minus", "minus 18 minus 5 is minus 23."),
        ("minus 18 minus 5 is minus 23.", "calc plus", "minus 18 plus 5 is minus 13."),
        ("After Monday comes Tuesday.", "next after", "After Tuesday comes Wednesday."),
        ("After Monday comes Tuesday.", "next before", "Before Monday comes Sunday."),
        ("Before Monday comes Sunday.", "next friday", "Before Friday comes Thursday."),
        ("After 41 comes 42.", "next after", "After 42 comes 43."),
        ("Before 0 comes minus 1.", "next before", "Before minus 1 comes minus 2."),
        ("b, e, e", "again", "b, e, e"),
        ("Nice to meet you, Anna.", "recall name", "Your name is Anna."),
        ("Nice to meet you, Anna.", "recall city", "I don't know where you live yet."),
        ("Nice to meet you, Anna.", "greet", "Hello, Anna!"),
        ("Okay. You are 42.", "recall age", "You are 42."),
        ("Okay. You live in New York.", "recall city", "You live in New York."),
    ],
)
def test_a_call_goes_on_from_what_was_said(before: str, call: str, said: str) -> None:
    assert answer(call, View(said=("It is 10:42.", before))) == said
    assert answer(call, View(said=(before, "Hello! What can I do for you?"))) == said or call == "again"


def test_the_newest_of_what_was_told_counts() -> None:
    said = ("Nice to meet you, Anna.", "Nice to meet you, Bob.", *["Okay."] * 50)
    assert answer("recall name", View(said=said)) == "Your name is Bob."


@pytest.mark.parametrize("fact", FACTS)
def test_what_is_remembered_is_recalled(fact: str) -> None:
    confirmed = answer(f"remember {fact} red", View()) or ""
    assert "red" in (answer(f"recall {fact}", View(said=(confirmed,))) or "").lower()


def test_what_a_tool_returned_is_told() -> None:
    assert answer("tell", View(skill="weather", returned="sunny, 21")) == "The weather: sunny, 21."
    assert answer("tell", View(skill="get_time", returned="9:05")) == "It is 9:05."


def test_what_is_no_tool_of_its_own_has_no_answer() -> None:
    assert answer("open_valve", View()) is None
    assert answer("", View()) is None


@given(st.integers(-(10**12), 10**12), st.sampled_from(["plus", "minus", "times"]), st.integers(0, 10**6))
def test_a_sum_that_was_said_is_understood_again(a: int, op: str, b: int) -> None:
    value = {"plus": a + b, "minus": a - b, "times": a * b}[op]
    first = answer(f"calc {a} {op} {b}", View()) or ""
    if abs(value) > own.LARGEST:
        assert first == own.TOO_LONG
    else:
        spoken = f"minus {-value}" if value < 0 else str(value)
        assert first.endswith(f" is {spoken}.")
        assert answer("calc it plus 0", View(said=(first,))) == f"{spoken} plus 0 is {spoken}."
        assert answer(f"calc {op}", View(said=(first,))) == first


@given(
    st.lists(st.sampled_from([*own.TOOLS, "it", "plus", "swap", "12", "monday", "after", "down", "name"]), max_size=6)
)
def test_no_call_fails(words: list[str]) -> None:
    said = answer(" ".join(words), View(said=("12 plus 30 is 42.", "After Monday comes Tuesday.")))
    assert (said is None) == (not words or words[0] not in own.TOOLS)
    assert said is None or said
