"""The report: what a table shows, and XML that every reader of JUnit files takes."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from app.client import CallDone, Response
from app.simulation.expectations import Check
from app.simulation.listener import TurnRecord
from app.simulation.report import Report, show_rate, show_run, write_junit
from app.simulation.scenario import CallerTurn, Scenario
from app.simulation.simulation import CheckedTurn, SimulatedCall

SCENARIO = Scenario(name="a [b]", turns=(CallerTurn(type="hi"),))
GOOD, BAD = Check("contains 'x'", True, "'x'"), Check("first_audio_ms", False, "900, at most 500")


def run(*checks: Check, text: str = "[red] & <x>\x00", number: int = 1) -> SimulatedCall:
    answer = Response(0.0, text=text, calls=[CallDone("r", "c", "set_timer", "{}")])
    record = TurnRecord("types: [hi]", 1.0, turn_over_s=1.0, ended_s=3.5, answers=[answer])
    return SimulatedCall(number, [CheckedTurn(record, list(checks))], took_s=4.0)


def shown(one: SimulatedCall, runs: int = 1) -> str:
    console = Console(file=io.StringIO(), width=200, emoji=False)
    show_run(one, runs, console)
    show_rate(Report(SCENARIO, [one] * runs), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_run_is_a_table_of_turns_with_their_checks() -> None:
    text = shown(run(GOOD, BAD))
    for part in (
        "caller: types: [hi]",
        "tool call: set_timer({})",
        "assistant: [red] & <x>",
        "ok contains 'x' ",
        "a [b]: failed",
    ):
        assert part in text
    assert "FAILED first_audio_ms: 900, at most 500" in text


def test_of_several_runs_only_failed_ones_have_a_table() -> None:
    assert shown(run(GOOD), 2) == "run 1: passed in 4.0 s\na [b]: 2 of 2 runs passed (100%)\n"
    assert "FAILED" in shown(run(BAD), 2)


def test_junit_has_a_case_for_each_turn_and_each_call(tmp_path: Path) -> None:
    write_junit([Report(SCENARIO, [run(GOOD), run(BAD, number=2)])], tmp_path / "x.xml")
    (suite,) = ElementTree.parse(tmp_path / "x.xml").getroot()
    assert suite.attrib == {"name": "a [b]", "tests": "4", "failures": "1", "time": "8.000"}
    assert [case.get("name") for case in suite] == [
        "run 1, turn 1: types: [hi]",
        "run 1, whole call",
        "run 2, turn 1: types: [hi]",
        "run 2, whole call",
    ]
    failure = suite[2].find("failure")
    assert failure is not None
    assert failure.get("message") == "first_audio_ms: 900, at most 500"
    assert failure.text == "first_audio_ms: 900, at most 500\nassistant: [red] & <x>"
    assert suite[2].get("time") == "2.500"
