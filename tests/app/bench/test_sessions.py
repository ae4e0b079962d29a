"""The bench against a real server with scripted answers, over a real socket."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from app import bench
from app.bench import client, engines, listeners_of, sessions, subject
from app.bench.client import Turn, open_client, outcome
from app.bench.subject import Served
from app.bench.target import BenchError, Target, target_of, voiced
from app.client import ClientError
from app.commands.deployment import deployment

SPOKEN = Path(__file__).parents[2] / "data" / "spoken" / "in_211.ogg"


def test_a_whole_session_with_a_server_of_its_own(scripted: subject.Subject) -> None:
    assert 0 < scripted.green_s < 60
    assert scripted.rss_gb() > 0.02
    figures = asyncio.run(sessions.typed(Target(scripted.url), 3))
    figures += asyncio.run(sessions.typed_at_once(Target(scripted.url), 1))
    assert [figure.name for figure in figures] == [
        "TTFA(commit), typed, p50",
        "TTFA(commit), typed, p95",
        "8 typed answers at once: underruns",
        "TTFA of those, p50",
        "TTFA of those, p95",
    ]
    assert all(figure.value is not None for figure in figures)


def test_a_server_that_does_not_start_is_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text("model: script\nworkers: [{stages: [ears]}]\nserver: {prot: 1}\n")
    with pytest.raises(BenchError, match=r"server\.prot"), subject.running(str(config)):
        pass


async def test_nobody_at_the_address_is_one_sentence() -> None:
    with pytest.raises(BenchError, match="no session at"):
        async with open_client(Target("ws://127.0.0.1:9")):
            pass


def test_a_missing_answer_makes_the_figures_void() -> None:
    good = Turn(0.0, status="completed")
    good.player.receive(0.1, np.full(2400, 0.1, np.float32))
    late, silent = Turn(0.0), Turn(0.0, status="completed")
    assert [figure.value for figure in sessions.underruns("x", [good], sessions.Clients())] == [0.0]
    for bad in (late, silent):
        assert not any(figure.passed for figure in sessions.underruns("x", [good, bad], sessions.Clients()))
        assert not any(figure.passed for figure in sessions._first_audio("x", [good, bad]))


def test_what_the_clients_take_of_the_machine_is_told_with_the_load() -> None:
    at_s, busy_s = 10.0, 5.0
    took = sessions.Clients(lambda: at_s, lambda: busy_s)
    at_s, busy_s = 12.0, 5.5
    assert took.cores == 0.25
    (figure,) = sessions.underruns("x", [], took)
    assert figure.note.endswith("the clients took 0.25 of a core")


def test_the_clients_share_is_counted_by_the_processs_own_clock() -> None:
    took, until_s = sessions.Clients(), time.process_time() + 0.05
    while time.process_time() < until_s:
        pass
    assert 0 < took.cores <= 1.01 * (os.cpu_count() or 1)


def test_hand_overs_have_their_bars() -> None:
    figures = engines.handovers(1)
    assert [figure.bar for figure in figures][:2] == [60, 150]
    assert all(figure.value is not None and figure.value > 0 for figure in figures)


def test_without_a_clone_there_are_no_hand_overs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engines, "ALONE", tmp_path / "none.py")
    assert engines.handovers(1) == []


def test_a_failing_measurement_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "broken.py").write_text("raise SystemExit('no such thing')")
    monkeypatch.setattr(engines, "ALONE", tmp_path / "benchmarks" / "broken.py")
    with pytest.raises(BenchError, match="no such thing"):
        engines.handovers(1)


async def test_the_real_time_factor() -> None:
    factor = await engines.real_time_factor(deployment("script"), 1)
    assert factor.value is not None
    assert 0 < factor.value < 1


KEYED = """
model: script
workers: [{stages: [ears, thinker, talker, code2wav]}]
server: {keys_file: KEYS}
options: {frames_per_word: 2}  # answers are played as they are paced: short ones measure the same
"""


def test_any_endpoint_is_measured_by_its_address_key_model_and_a_recording(tmp_path: Path) -> None:
    """The key, the path and the model's name are what another server would ask for; the turns are found by voice."""
    key, config, figures = tmp_path / "key", tmp_path / "keyed.yaml", tmp_path / "figures.json"
    key.touch(0o600)
    key.write_text("sk-of-this-very-test\n")
    config.write_text(KEYED.replace("KEYS", str(key)))
    with subject.running(str(config)) as server:
        target = target_of(f"{server.url}/v1", "gpt-realtime", str(key), SPOKEN)
        bench.run_bench(deployment("script"), Served(), target, minutes=None, json_path=figures)
        with pytest.raises(BenchError, match="key"):
            asyncio.run(sessions.typed(Target(server.url), 1))
    found = {row["name"]: row["value"] for row in orjson.loads(figures.read_bytes())["figures"]}
    assert found["TTFA(commit), typed, p50"] > 0
    assert found["last word → first sound, p50"] > 150
    assert {name for name, value in found.items() if value is None} == set()


def test_a_recording_that_cannot_be_said_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("no sound")
    for name in ("words.txt", "missing.wav"):
        with pytest.raises(BenchError, match=name):
            target_of("http://127.0.0.1:9", "", None, tmp_path / name)
    with pytest.raises(BenchError, match="no audible speech"):
        voiced(np.zeros(100, np.int16))


def test_full_load_against_a_server(scripted: subject.Subject) -> None:
    (figure,) = asyncio.run(sessions.full_load(Target(scripted.url), 3, 1))
    assert figure.value is not None, figure
    assert figure.name == "3 listeners for 1 s: underruns"


def failed(**details: Any) -> Turn:
    return Turn(0.0, status="failed", response={"status_details": {"type": "failed", **details}})


def sounding() -> Turn:
    turn = Turn(0.0, status="completed")
    turn.player.receive(0.1, np.full(2400, 0.1, np.float32))
    return turn


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (sounding(), "completed"),
        (Turn(0.0, status="completed"), "completed without audio"),
        (Turn(0.0, failure=ClientError("the connection is lost")), "missing: the connection is lost"),
        (failed(error={"code": "replica_lost", "message": "it was lost"}), "failed: replica_lost, it was lost"),
        (failed(reason="turn_detected"), "failed: turn_detected"),
        (Turn(0.0, status="cancelled"), "cancelled"),
    ],
)
def test_it_is_told_why_an_answer_is_not_complete(turn: Turn, told: str) -> None:
    assert outcome(turn) == told


def test_outcomes_are_counted_the_most_frequent_first() -> None:
    assert sessions.counted(["failed: lost", "completed", "completed"]) == "2 completed; 1 failed: lost"


async def test_what_went_wrong_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused() -> Turn:
        raise ClientError("no more of these", "overloaded")

    async def never() -> Turn:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(client, "TURN_S", 0.01)
    assert outcome(await client._turn(refused())) == "missing: no more of these"
    assert outcome(await client._turn(never())) == "missing: no complete answer within 0.01 s"


def test_a_voice_that_is_slower_than_its_sound_has_one_listener() -> None:
    assert [listeners_of(factor) for factor in (0.01, 0.1, 0.8, 2.0)] == [80, 8, 1, 1]
