"""`parley worker`: what it refuses before it starts anything, and the command of each process that it starts."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands import worker
from app.commands.worker import WorkerOffer
from tests.app.rig import TIMEOUT_S

OFFER = WorkerOffer("10.0.0.1:7000", "token", "talker", ("0", "1"), 2, "10.0.0.7", 30.0)
NEEDED = ("worker", "--join", "10.0.0.1:7000", "--token-file", "token", "--stages", "talker")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """How often the command got as far as to start something; nothing is."""
    begun: list[object] = []

    def run(work: Coroutine[Any, Any, bool]) -> bool:
        work.close()
        begun.append(work)
        return True

    monkeypatch.setattr(worker, "run", run)
    return begun


@pytest.mark.seed("A1.19")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--replicas", "3", "--devices", "0,1"), "--devices: 3 replicas need as many devices (got 2)"),
        (("--replicas", "2", "--devices", "cuda:0"), "--devices: 2 replicas need as many devices (got 1)"),
        (("--replicas", "0"), "'--replicas'"),
        (("--replicas", "-1"), "'--replicas'"),
        (("--replicas", "two"), "'--replicas'"),
        (("--wait", "-1"), "'--wait'"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_starts_nothing(
    options: tuple[str, ...], sentence: str, started: list[object]
) -> None:
    result = CliRunner().invoke(cli, [*NEEDED, *options], catch_exceptions=False)
    assert result.exit_code
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not started


@pytest.mark.seed("A1.19")
@pytest.mark.parametrize("missing", ["--join", "--token-file", "--stages"])
def test_an_option_that_is_missing_is_named(missing: str, started: list[object]) -> None:
    at = NEEDED.index(missing)
    result = CliRunner().invoke(cli, NEEDED[:at] + NEEDED[at + 2 :], catch_exceptions=False)
    assert result.exit_code
    assert missing in result.stderr
    assert not started


async def test_a_signal_that_comes_while_a_process_starts_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, told, really = worker._Workers(OFFER), list[int](), asyncio.create_subprocess_exec

    async def slowly(*command: str, **options: Any) -> asyncio.subprocess.Process:
        process = await really(sys.executable, "-c", "input()", **options)
        workers._leave()
        monkeypatch.setattr(process, "send_signal", lambda number: (told.append(number), process.kill()))
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    async with asyncio.timeout(TIMEOUT_S):
        assert await workers._keep(0)
    assert told == [signal.SIGTERM]


@pytest.mark.parametrize("options", [(), ("--replicas", "3"), ("--replicas", "2", "--devices", "0,1")])
def test_an_offer_that_fits_is_started(options: tuple[str, ...], started: list[object]) -> None:
    assert CliRunner().invoke(cli, [*NEEDED, *options], catch_exceptions=False).exit_code == 0
    assert len(started) == 1


@pytest.mark.seed("A1.17", "A1.18")
def test_each_process_has_a_device_of_its_own_and_the_address() -> None:
    commands = [OFFER.command(replica, f"key{replica}") for replica in range(2)]
    given = [dict(pairwise(command)) for command in commands]
    assert [(one["--device"], one["--key"], one["--address"]) for one in given] == [
        ("0", "key0", "10.0.0.7"),
        ("1", "key1", "10.0.0.7"),
    ]
