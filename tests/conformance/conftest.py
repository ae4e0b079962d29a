"""The clients' suite: servers as users start them, a real voice, and the table client × scenario at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console
from rich.table import Table

from app.access.tls import AUTO, certificate_of
from app.bench import subject
from app.settings import Settings
from engine.audio.resampler import resample
from tests.conformance.environments import RECIPES, Client, Environment
from tests.conformance.forecasts import forecasts
from tests.conformance.part import RATE_HZ, Report, Task

SPOKEN = RECIPES.parents[0] / "data" / "spoken" / "in_020.ogg"
SAID = "corner decide"
"""What the voice in that recording asks to be repeated."""


@dataclass(frozen=True)
class Place:
    """Where servers are, as ``host:port``: one without TLS, one with it, and the certificate that it shows."""

    plain: str
    secure: str
    certificate: Path
    tools: str = ""
    """The MCP server that clients may use there."""


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """The scripted family, served."""
    with _served("script", tmp_path_factory.mktemp("tls")) as place:
        yield place


@pytest.fixture(scope="session")
def duplex(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """The scripted duplex model, served."""
    with _served("script_duplex", tmp_path_factory.mktemp("tls")) as place:
        yield place


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    """The built-in model, served."""
    with _served("nano", tmp_path_factory.mktemp("tls")) as place:
        yield place


@pytest.fixture
def short(tmp_path: Path) -> Generator[Place]:
    """The scripted family again, but each word lasts half as long."""
    config = tmp_path / "short.yaml"
    spec = (RECIPES.parents[1] / "configs" / "script.yaml").read_text()
    config.write_text(f"{spec}\noptions: {{frames_per_word: 3}}\n")
    with subject.running(str(config)) as plain:
        base = plain.url.partition("//")[2]
        yield Place(base, base, tmp_path)


@pytest.fixture
def hosting(tmp_path: Path) -> Generator[Place]:
    """The scripted family, beside an MCP server whose tools it may call; ``calls`` says which it did."""
    with forecasts() as url:
        config = tmp_path / "hosting.yaml"
        spec = (RECIPES.parents[1] / "configs" / "script.yaml").read_text()
        config.write_text(f"{spec}\nserver: {{mcp: [{{url: '{url}', private: true}}]}}\n")
        with subject.running(str(config)) as plain:
            base = plain.url.partition("//")[2]
            yield Place(base, base, tmp_path, url)


@contextmanager
def _served(config: str, folder: Path) -> Generator[Place]:
    certificate = certificate_of(Settings(https=AUTO), folder)
    assert certificate is not None
    with subject.running(config) as plain, subject.running(config, certificate.path) as secure:
        yield Place(plain.url.partition("//")[2], secure.url.partition("//")[2], certificate.path)


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """A recording as raw int16 at RATE_HZ, without silence at its ends, and its seconds."""
    wave, rate_hz = soundfile.read(SPOKEN, dtype="int16", always_2d=True)
    pcm = resample(wave[:, 0], rate_hz, RATE_HZ)
    loud = np.flatnonzero(np.abs(pcm) > 600)
    pcm = pcm[loud[0] : loud[-1] + 1]
    path = tmp_path_factory.mktemp("speech") / "question.pcm"
    path.write_bytes(pcm.astype("<i2").tobytes())
    return str(path), len(pcm) / RATE_HZ


Play = Callable[["Client", str, Place, str], Report]


@pytest.fixture
def play() -> Play:
    """Run a client's program: a scenario, at a place, with a recording."""
    return _play


def _play(client: Client, scenario: str, place: Place, recording: str) -> Report:
    require(client.environment)
    task = Task(scenario, place.secure if client.insists_on_tls else place.plain, recording, place.tools)
    said = printed(client.environment, _program(client), place, json.dumps(asdict(task)))
    return Report(**json.loads(said.splitlines()[-1]))


def require(environment: Environment) -> None:
    """Skip the test if the environment is not made."""
    if not environment.ready:
        pytest.skip(f"{environment.name} is not made: python tests/conformance/environments.py {environment.name}")


def printed(environment: Environment, program: Path, place: Place, *arguments: str) -> str:
    """Run a program in its environment, and return what it prints."""
    command = [environment.tool, str(program), *arguments]
    surroundings = _surroundings() | {"NODE_EXTRA_CA_CERTS": str(place.certificate)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=surroundings)
    assert result.returncode == 0, f"{command}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    return result.stdout


def _program(client: Client) -> Path:
    """JavaScript is run from where its packages lie: modules are looked up from there."""
    environment = client.environment
    if environment.is_python:
        return environment.recipe / client.program
    for source in (*RECIPES.glob("*.mjs"), *environment.recipe.glob("*.mjs")):
        shutil.copy(source, environment.folder)
    return environment.folder / client.program


def _surroundings() -> dict[str, str]:
    """No key and no setting of the user's, and the guard against leaving this machine."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PARLEY_TEST_NETWORK_LOG") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(RECIPES.parent / "guard"), str(RECIPES)])}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which client did what."""
    cells: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for outcome, mark in (("passed", "yes"), ("failed", "NO"), ("error", "NO"), ("skipped", "–")):
        for report in terminalreporter.getreports(outcome):
            head, _, case = report.nodeid.partition("[")
            client, _, scenario = case.rstrip("]").partition("-")
            if head.endswith("::test_a_client") or "built_in_model" in head:
                cells[client][scenario or "nano"] = mark
    if cells:
        columns = list(dict.fromkeys(column for row in cells.values() for column in row))
        table = Table("client", *columns, title="unmodified clients")
        for client, row in cells.items():
            table.add_row(client, *(row.get(column, "") for column in columns))
        Console(width=120).print(table)
