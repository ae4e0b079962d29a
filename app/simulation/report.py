"""The report of a scenario's runs: a table for the terminal, and JUnit XML for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.simulation.expectations import Check
from app.simulation.listener import TurnRecord
from app.simulation.scenario import Scenario
from app.simulation.simulation import SimulatedCall

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Report:
    """A scenario with its runs."""

    scenario: Scenario
    runs: Sequence[SimulatedCall]

    @property
    def passed(self) -> int:
        """The number of runs in which every check passed."""
        return sum(not run.failed for run in self.runs)


def show_run(run: SimulatedCall, runs: int, console: Console) -> None:
    """Print a run: its turns as a table; only one line if it is one of several and has passed."""
    if runs > 1:
        console.print(f"run {run.number}: {'failed' if run.failed else 'passed'} in {run.took_s:.1f} s")
    if runs > 1 and not run.failed:
        return
    table = Table("turn", "conversation", "checks", show_lines=True)
    for place, turn in enumerate(run.turns, start=1):
        table.add_row(str(place), escape(_conversation(turn.record)), _verdicts(turn.checks))
    if run.whole:
        table.add_row("all", "the whole call", _verdicts(run.whole))
    console.print(table)


def show_rate(report: Report, console: Console) -> None:
    """Print how many runs passed."""
    count = len(report.runs)
    rate = f"{report.passed} of {count} runs passed ({report.passed / count:.0%})"
    single = "failed" if report.runs[0].failed else "passed"
    console.print(f"{escape(report.scenario.name)}: {single if count == 1 else rate}")


def _conversation(record: TurnRecord) -> str:
    lines = [f"caller: {record.label}", *(f"tool call: {call.name}({call.arguments})" for call in record.calls)]
    first_ms = record.first_audio_ms
    if record.text or first_ms is not None:
        lines.append(f"assistant: {record.text}" + ("" if first_ms is None else f" (after {first_ms:.0f} ms)"))
    return "\n".join(lines)


def _verdicts(checks: Iterable[Check]) -> str:
    lines = [f"{'[green]ok' if check.passed else '[red]FAILED'}[/] {escape(_short(check))}" for check in checks]
    return "\n".join(lines) or "[green]ok[/]"


def _short(check: Check) -> str:
    """Return a check in one line. A passed check of a text does not repeat the answer."""
    return check.name if check.passed and check.detail.startswith(("'", '"')) else str(check)


def write_junit(reports: Sequence[Report], path: Path) -> None:
    """Write all runs as JUnit XML: a suite for each scenario, and a case for each turn and for each whole call."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        suite = ElementTree.SubElement(root, "testsuite", name=report.scenario.name)
        suite.extend(_cases(report))
        failures = sum(case.find("failure") is not None for case in suite)
        took_s = sum(run.took_s for run in report.runs)
        suite.attrib |= {"tests": str(len(suite)), "failures": str(failures), "time": f"{took_s:.3f}"}
    for element in root.iter():
        element.attrib = {name: _NOT_XML.sub("", value) for name, value in element.attrib.items()}
        element.text = _NOT_XML.sub("", element.text or "") or None
    ElementTree.indent(root)
    path.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _cases(report: Report) -> Iterator[ElementTree.Element]:
    for run in report.runs:
        prefix = f"run {run.number}, " if len(report.runs) > 1 else ""
        for place, turn in enumerate(run.turns, start=1):
            record = turn.record
            took_s = 0.0 if record.ended_s is None else record.ended_s - record.begun_s
            name = f"{prefix}turn {place}: {record.label}"
            yield _case(report.scenario.name, name, took_s, turn.checks, f"assistant: {record.text}")
        yield _case(report.scenario.name, f"{prefix}whole call", run.took_s, run.whole, "")


def _case(scenario: str, name: str, took_s: float, checks: Iterable[Check], context: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=scenario, name=name, time=f"{took_s:.3f}")
    failed = [str(check) for check in checks if not check.passed]
    if failed:
        failure = ElementTree.SubElement(case, "failure", message="; ".join(failed))
        failure.text = "\n".join([*failed, context])
    return case
