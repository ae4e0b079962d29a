"""`parley simulate`: run scenarios against a server, print the checks, and return the exit code."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from app.bench import stoppable
from app.bench.subject import running
from app.commands import terminal
from app.commands.deployment import deployment
from app.commands.server import Address
from app.commands.sink import check_file
from app.simulation.report import Report, show_rate, show_run, write_junit
from app.simulation.scenario import Scenario, load_scenario
from app.simulation.simulation import SimulatedCall, simulate
from engine import ConfigError, EngineError
from engine.aio.event_loop import run

PASSED, FAILED, NOT_RUN = 0, 1, 2
"""Exit codes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """The options of the command line."""

    url: str | None = None
    """A running server. None: a server is started for ``config``."""
    key_file: str | None = None
    config: str | None = None
    llm: str | None = None
    """Replaces the scenarios' ``llm``."""
    llm_key_file: str | None = None
    runs: int = 1
    junit: Path | None = None


def run_simulation(paths: Sequence[Path], options: SimulationOptions) -> int:
    """Run all scenarios, print and save the report, and return the exit code."""
    console = Console(emoji=False, highlight=False)
    try:
        if options.junit is not None:
            check_file(str(options.junit), (".xml",))
        scenarios = [_loaded(path, options) for path in paths]
        with _served(options) as address:
            reports = [_report(scenario, address, options, console) for scenario in scenarios]
    except EngineError as error:
        terminal.fail(str(error))
        return NOT_RUN
    if options.junit is not None:
        write_junit(reports, options.junit)
    return PASSED if all(report.passed == len(report.runs) for report in reports) else FAILED


def _loaded(path: Path, options: SimulationOptions) -> Scenario:
    scenario = load_scenario(path)
    if options.llm is not None:
        scenario = dataclasses.replace(scenario, llm=options.llm)
    if scenario.needs_llm and scenario.llm is None:
        raise ConfigError(f"{path}: a caller with a goal and judge need a language model: add llm, or use --llm")
    return scenario


@contextmanager
def _served(options: SimulationOptions) -> Generator[Address]:
    """Yield the server of ``url``, or start one for the configuration while the block lasts. Raises EngineError."""
    if options.url is not None:
        yield Address(options.url, options.key_file)
        return
    deployment(options.config)  # reports a mistake before anything starts
    with stoppable(), terminal.waiting("starting a server …") as status, running(options.config) as server:
        status.stop()
        yield Address(server.url)


def _report(scenario: Scenario, address: Address, options: SimulationOptions, console: Console) -> Report:
    def show(done: SimulatedCall) -> None:
        show_run(done, options.runs, console)

    terminal.whisper(f"{scenario.name} …")
    report = Report(scenario, run(simulate(scenario, address, options.llm_key_file, options.runs, show)))
    show_rate(report, console)
    return report
