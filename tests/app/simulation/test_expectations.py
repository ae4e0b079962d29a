"""Each expectation holds and fails where it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.client import CallDone, Response
from app.simulation.expectations import checks, checks_of_turn
from app.simulation.listener import TurnRecord
from app.simulation.scenario import CallerTurn, Expectations, ExpectedCall


def record(text: str = "The sum is five.", *, first_s: float | None = 2.0, **fields: Any) -> TurnRecord:
    """A turn of one second, answered from second ``first_s`` on and heard until second 5."""
    answer = Response(0.0, id="r", text=text, status="completed")
    if first_s is not None:
        answer.player.receive(first_s, np.full(24_000, 0.2, np.float32))
    one = TurnRecord("x", 0.0, turn_over_s=1.0, ended_s=5.0, answers=[answer] if text else [])
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def called(name: str, arguments: str) -> TurnRecord:
    one = record()
    one.answers[0].calls.append(CallDone("r", "c", name, arguments))
    return one


OVER = Response(0.0)
TIMER = (ExpectedCall(name="set_timer", arguments={"minutes": 10}),)


@pytest.mark.parametrize(
    ("expected", "good", "bad"),
    [
        ({"contains": ("SUM",)}, record(), record("Five.")),
        ({"not_contains": ("sorry",)}, record(), record("Sorry?")),
        ({"matches": r"\bis (five|5)\b"}, record(), record("It is fifty.")),
        ({"first_audio_ms": 1500}, record(), record(first_s=2.6)),
        ({"first_audio_ms": 1500}, record(), record(first_s=None)),
        ({"first_audio_ms": 1500}, record(), record("")),
        ({"stop_ms": 500}, record(over=OVER, quiet_s=0.4), record(over=OVER, quiet_s=0.6)),
        ({"stop_ms": 500}, record(over=OVER, quiet_s=0.4), record(over=OVER)),
        ({"continues": True}, record(over=OVER), record(over=OVER, quiet_s=0.4)),
        ({"no_answer": True}, record(""), record()),
        ({"not_cut": True}, record(), record(cut=True)),
        ({"calls": TIMER}, called("set_timer", '{"minutes": 10.0, "label": "tea"}'), record()),
        ({"calls": TIMER}, called("set_timer", '{"minutes": 10}'), called("set_timer", '{"minutes": 1}')),
        ({"calls": TIMER}, called("set_timer", '{"minutes": 10}'), called("set_alarm", '{"minutes": 10}')),
        ({"calls": TIMER}, called("set_timer", '{"minutes": 10}'), called("set_timer", '{"minutes"')),
        ({"not_called": ("set_timer",)}, record(), called("set_timer", "{}")),
        ({"ends_s": 6}, record(), record(ended_s=7.0)),
        ({"ends_s": 6}, record(), record(ended_s=None)),
    ],
)
def test_an_expectation_holds_or_fails(expected: dict[str, Any], good: TurnRecord, bad: TurnRecord) -> None:
    expect = Expectations(**expected)
    assert [check.passed for check in checks(expect, [good], good.ended_s)] == [True]
    assert [check.passed for check in checks(expect, [bad], bad.ended_s)] == [False]


def test_a_whole_call_is_as_slow_as_its_slowest_turn() -> None:
    (check,) = checks(Expectations(first_audio_ms=1500), [record(), record(first_s=3.0), record("")], 9.0)
    assert str(check) == "first_audio_ms: 2000, at most 1500"
    (check,) = checks(Expectations(first_audio_ms=1500), [record(), record(first_s=None)], 9.0)
    assert str(check) == "first_audio_ms: never, at most 1500"


def test_every_turn_must_keep_the_rules() -> None:
    said = CallerTurn(say=("hi",))
    assert checks_of_turn(said, record()) == []
    assert [str(one) for one in checks_of_turn(said, record(errors=["code: no"]))] == ["error: code: no"]
    assert [str(one) for one in checks_of_turn(said, record(""))] == ["answer: there was none"]
    assert [str(one) for one in checks_of_turn(said, record("", failure="too long"))] == ["limit_s: too long"]
    assert checks_of_turn(CallerTurn(silence_s=2), record("")) == []
    (check,) = checks_of_turn(CallerTurn(say=("hi",), barge_in_ms=3), record())
    assert check.name == "barge_in_ms"
