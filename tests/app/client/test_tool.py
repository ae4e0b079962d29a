"""A tool checks at the start what would otherwise fail at the model's first call."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from app.client import Tool

MINUTES = {"type": "object", "properties": {"minutes": {"type": "number"}}, "required": ["minutes"]}


def start(minutes: float) -> float:
    return minutes


@pytest.mark.parametrize(
    ("run", "description", "parameters", "fault"),
    [
        ("start", "Starts.", MINUTES, "run must be a function, not str"),
        (start, " ", MINUTES, "description is empty"),
        (start, "Starts.", {}, "missing a required argument: 'minutes'"),
        (start, "Starts.", ["minutes"], "parameters must be a JSON schema as a dict"),
        (lambda: 0, "Starts.", MINUTES, "unexpected keyword argument 'minutes'"),
        (lambda minutes, hours: 0, "Starts.", MINUTES, "missing a required argument: 'hours'"),
    ],
)
def test_a_tool_that_could_not_be_called_is_refused(run: Any, description: str, parameters: Any, fault: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"tool 'timer': .*{fault}"):
        Tool("timer", description, run, parameters)


class Timers:
    async def __call__(self, minutes: float) -> float:
        return minutes

    async def start(self, minutes: float) -> float:
        return minutes


@pytest.mark.parametrize(
    "run",
    [
        start,
        Timers(),
        Timers().start,
        functools.partial(Timers().start),
        lambda minutes: minutes,
        lambda **every: every["minutes"],
        lambda minutes, hours=0: minutes,
    ],
)
async def test_every_kind_of_function_is_called(run: Any) -> None:
    assert await Tool("timer", "Starts.", run, MINUTES).call({"minutes": 3}) == 3
