"""`parley simulate` against a server: a good one passes, planted faults are found, and no call lasts for ever."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest
import soundfile
from typer.testing import CliRunner, Result

from app.cli import cli
from app.commands.server import Address
from app.simulation.scenario import parse_scenario
from app.simulation.simulation import SimulatedCall, simulate
from tests.app.rig import Running, eventually, keys_file, running, script_spec, tone
from tests.app.simulation.faulty_server import Fault, IgnoredInterruption, LateAnswers, WrongTool, faulty

TIMER = """
  - type: 'tool set_timer {"minutes": 10}'
    expect: {contains: 'says: {"started":true}', calls: [{name: set_timer, arguments: {minutes: 10}}]}
"""
LATE = """
  - {audio: hello.wav, expect: {contains: i heard, first_audio_ms: 4500, not_cut: true}}
"""
BARGE_IN = """
  - {type: long 100}
  - {audio: stop.wav, barge_in_ms: 300, limit_s: 10, expect: {stop_ms: 5000}}
"""
TOOLS = "tools: [{name: set_timer, description: Starts a timer., result: {started: true}}]\n"


def scenario(turns: str, more: str = TOOLS) -> str:
    return f"name: calls\n{more}turns:{turns}"


async def called(text: str, url: str, folder: Path, runs: int = 1) -> list[SimulatedCall]:
    soundfile.write(folder / "hello.wav", tone(0.6), 24_000)
    soundfile.write(folder / "stop.wav", tone(1.4), 24_000)
    return await simulate(parse_scenario(text, folder), Address(url), runs=runs)


def failed(runs: list[SimulatedCall]) -> list[str]:
    return [check.name.partition(" ")[0] for run in runs for check in run.failed]


@pytest.mark.slow
async def test_a_good_assistant_passes_every_run(server: Running, tmp_path: Path) -> None:
    spoken = "\n  - {say: [one two three four five, six seven eight], pause_s: 0.2, expect: {contains: heard}}"
    text = scenario(LATE + BARGE_IN + TIMER + spoken + "\n  - {silence_s: 0.5, expect: {no_answer: true}}")
    runs = await called(text, server.http, tmp_path, runs=2)
    assert failed(runs) == []
    assert [run.number for run in runs] == [1, 2]
    assert runs[0].turns[2].record.stop_ms is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "turns", "names"),
    [
        (LateAnswers, LATE, {"first_audio_ms"}),
        (IgnoredInterruption, BARGE_IN, {"stop_ms", "limit_s"}),
        (WrongTool, TIMER, {"calls", "contains", "answer"}),
    ],
    ids=["late answers", "ignored interruption", "wrong tool"],
)
async def test_a_planted_fault_is_found(
    server: Running, tmp_path: Path, fault: type[Fault], turns: str, names: set[str]
) -> None:
    async with faulty(server.http, Fault) as url:
        assert failed(await called(scenario(turns), url, tmp_path)) == []
    async with faulty(server.http, fault) as url:
        assert set(failed(await called(scenario(turns), url, tmp_path))) == names


@pytest.mark.slow
async def test_a_backchannel_is_expected_to_leave_the_answer_alone(server: Running, tmp_path: Path) -> None:
    """A loud tone of 1.4 s is no backchannel, so the answer stops, and the tone is answered."""
    turns = (
        "\n  - {type: long 100}\n  - {audio: stop.wav, barge_in_ms: 300, expect: {continues: true, no_answer: true}}"
    )
    assert failed(await called(scenario(turns), server.http, tmp_path)) == ["continues", "no_answer"]


async def test_a_turn_without_an_end_is_one_failure(server: Running, tmp_path: Path) -> None:
    turns = "\n  - {type: long 5000, limit_s: 0.4}\n  - {type: 'say: hi'}"
    (run,) = await called(scenario(turns), server.http, tmp_path)
    assert [str(check) for check in run.failed] == ["limit_s: the turn with its answer was not over after 0.4 s"]
    assert len(run.turns) == 1, "the call ends there"


async def test_a_call_without_an_end_is_one_failure(server: Running, tmp_path: Path) -> None:
    (run,) = await called(scenario("\n  - {type: long 5000}", "limit_s: 0.5\n"), server.http, tmp_path)
    assert [str(check) for check in run.failed] == ["limit_s: the call was not over after 0.5 s"]


async def test_an_error_of_the_server_fails_the_turn(server: Running, tmp_path: Path) -> None:
    (run,) = await called(scenario("\n  - {type: fail}"), server.http, tmp_path)
    assert failed([run]) == ["error"]
    assert "the script says that this answer fails" in str(run.failed[0])


async def test_a_connection_that_breaks_is_a_failure_and_later_runs_report_it(tmp_path: Path) -> None:
    async with running(script_spec(drain_s=0.1)) as server:
        text = scenario("\n  - {type: long 5000}")
        call = asyncio.create_task(called(text, server.http, tmp_path, runs=2))
        await eventually(lambda: any(server._leased()))
        server.server.leave()
        runs = await call
    assert [run.failed[-1].name for run in runs] == ["connection", "connection"]


def parley(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments], catch_exceptions=False)


@pytest.mark.slow
async def test_the_command_reports_and_exits(server: Running, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(scenario("\n  - {type: 'say: one', expect: {contains: one}}"))
    bad = tmp_path / "bad.yaml"
    bad.write_text(scenario("\n  - {type: 'say: [one]', expect: {contains: two}}"))
    junit = tmp_path / "results.xml"
    url = ("--url", server.http, "--junit", str(junit), "--runs", "2")
    one = await asyncio.to_thread(parley, str(good), *url)
    assert (one.exit_code, one.stdout.splitlines()[-1]) == (0, "calls: 2 of 2 runs passed (100%)")
    both = await asyncio.to_thread(parley, str(good), str(bad), *url)
    assert both.exit_code == 1
    assert "calls: 0 of 2 runs passed (0%)" in both.stdout
    assert "FAILED contains 'two'" in both.stdout
    assert "[one]" in both.stdout
    suites = ElementTree.parse(junit).getroot().findall("testsuite")
    assert [(one.get("tests"), one.get("failures")) for one in suites] == [("4", "0"), ("4", "2")]


async def test_what_cannot_be_run_exits_with_2(server: Running, tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(scenario("\n  - {type: 'say: one'}"))
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: x\n")
    settings = tmp_path / "settings.yaml"
    settings.write_text(scenario("\n  - {type: hi}", "session: {output_modalities: [smell]}\n"))
    judged = tmp_path / "judged.yaml"
    judged.write_text(scenario("\n  - {type: hi, expect: {judge: It is polite.}}"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    for arguments, sentence in (
        ((str(wrong), "--url", server.http), "line 1: turns: write either turns, or a caller"),
        ((str(good), "--url", nobody), f"no session at {nobody}"),
        ((str(good), "--url", "host:1"), "is not a valid server URL"),
        ((str(settings), "--url", server.http), "output_modalities"),
        ((str(judged), "--url", server.http), "need a language model: add llm, or use --llm"),
        ((str(good), "--url", server.http, "--junit", str(tmp_path / "none" / "x.xml")), "no such folder"),
    ):
        result = await asyncio.to_thread(parley, *arguments)
        assert result.exit_code == 2, arguments
        assert sentence in result.stderr.replace("\n", " ")
        assert result.stderr.count("error:") == 1


def test_an_unknown_configuration_exits_with_2(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(scenario("\n  - {type: 'say: one'}"))
    result = parley(str(good), "--config", "nan")
    assert result.exit_code == 2
    assert "unknown configuration 'nan' (did you mean 'nano'?)" in result.stderr.replace("\n", " ")


async def test_a_key_is_sent(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(scenario("\n  - {type: 'say: one'}"))
    keys = keys_file(tmp_path, "sk-one-0123456789")
    async with running(script_spec(keys_file=keys)) as server:
        url = (str(good), "--url", server.http)
        assert (await asyncio.to_thread(parley, *url)).exit_code == 2
        assert (await asyncio.to_thread(parley, *url, "--key-file", keys)).exit_code == 0
