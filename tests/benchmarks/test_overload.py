"""Ten times too many users: those who are let in hear everything, the others are told at once; and what would fail."""

from __future__ import annotations

import numpy as np
import pytest

from app.bench import subject
from app.bench.client import Turn
from app.bench.figures import Figure
from app.bench.target import Target
from benchmarks import overload
from benchmarks.overload import Visits, judged

pytestmark = pytest.mark.slow  # servers are started


def turn(gap_s: float = 0.0) -> Turn:
    """Two packets of a tenth of a second, the second of which comes late by so much."""
    found = Turn(0.0, status="completed")
    found.player.receive(0.1, np.full(2400, 0.1, np.float32))
    found.player.receive(0.2 + gap_s, np.full(2400, 0.1, np.float32))
    return found


def verdicts(visits: Visits) -> list[bool]:
    return [figure.passed for figure in judged(visits, 2, 1.0)]


def test_a_gap_a_late_refusal_and_a_house_that_lets_everybody_in_fail() -> None:
    assert verdicts(Visits([turn()], 2, [3.0] * 18)) == [True, True]
    assert verdicts(Visits([turn(gap_s=0.5)], 2, [3.0] * 18)) == [False, True]
    assert verdicts(Visits([turn()], 2, [3.0] * 9 + [80.0] * 9)) == [True, False]
    assert verdicts(Visits([turn()] * 20, 20, [])) == [False, False]
    assert verdicts(Visits([], 0, [3.0] * 20)) == [False, False]


def test_a_control_fails_where_nothing_ran_dry() -> None:
    (fine,) = overload.control([Figure(name="x", value=0.0, unit="", bar=0)])
    (dry,) = overload.control([Figure(name="x", value=3.0, unit="", bar=0)])
    assert (fine.passed, dry.passed) == (False, True)


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_a_full_server_refuses_and_serves_those_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overload, "VISIT_S", 1.0)
    with subject.running("script", changes={"server.limits.sessions": 2}) as server:
        figures = await overload.overload(Target(server.url), 2, 1.0)
    assert figures[0].value is not None, "those who were let in were answered to the end"
    assert figures[1].value is not None, "the others were refused"
