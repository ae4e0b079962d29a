"""The bench against a real server with scripted answers, over a real socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from app import bench
from app.bench import endurance, engines, sessions, subject
from app.bench.client import BenchError, Turn, open_client
from app.commands.deployment import deployment


def test_a_whole_session_with_a_server_of_its_own() -> None:
    with subject.running("script") as server:
        assert 0 < server.green_s < 60
        assert server.rss_gb() > 0.02
        figures = asyncio.run(sessions.typed(server.url, 3))
        figures += asyncio.run(sessions.typed_at_once(server.url, 1))
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
        async with open_client("ws://127.0.0.1:9"):
            pass


def test_a_missing_answer_makes_the_figures_void() -> None:
    good = Turn(0.0, status="completed")
    good.player.receive(0.1, np.full(2400, 0.1, np.float32))
    late, silent = Turn(0.0), Turn(0.0, status="completed")
    assert [figure.value for figure in sessions.underruns("x", [good])] == [0.0]
    for bad in (late, silent):
        assert not any(figure.passed for figure in sessions.underruns("x", [good, bad]))
        assert not any(figure.passed for figure in sessions._first_audio("x", [good, bad]))


def test_hand_overs_have_their_bars() -> None:
    figures = engines.handovers(1)
    assert [figure.bar for figure in figures][:2] == [60, 150]
    assert all(figure.value is not None and figure.value > 0 for figure in figures)


def test_without_a_clone_there_are_no_hand_overs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engines, "ALONE", tmp_path / "none.py")
    assert engines.handovers(1) == []


def test_a_failing_measurement_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('no such thing')")
    monkeypatch.setattr(engines, "ALONE", tmp_path / "broken.py")
    with pytest.raises(BenchError, match="no such thing"):
        engines.handovers(1)


async def test_the_real_time_factor() -> None:
    factor = await engines.real_time_factor(deployment("script"), 1)
    assert factor.value is not None
    assert 0 < factor.value < 1


def test_the_json_of_a_quick_run_names_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Voice needs a model whose speech a turn detector knows as speech; here its place is taken by a typed turn."""
    monkeypatch.setattr(bench.sessions, "voices", lambda url, rounds: sessions.typed(url, 1))
    with subject.running("script") as server:
        bench.run_bench(deployment("script"), "script", server.url, minutes=None, json_path=tmp_path / "figures.json")
    names = [row["name"] for row in orjson.loads((tmp_path / "figures.json").read_bytes())["figures"]]
    assert "TTFA(commit), typed, p50" in names


def test_long_conversations_and_load_against_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endurance, "TURNS", 6)
    with subject.running("script") as server:
        figures = [asyncio.run(endurance.long_conversations(server.url, 1))]
        figures += asyncio.run(endurance.full_load(server.url, 3, 1))
    assert all(figure.value is not None for figure in figures), figures
    assert figures[-1].value == 0


async def test_an_answer_in_the_hesitation_makes_the_figure_void(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(client: Any, said: Any) -> Turn:
        turn = Turn(1.0, status="completed")
        turn.player.receive(1.2, np.full(2400, 0.1, np.float32))
        return turn

    monkeypatch.setattr(endurance, "_hesitate", hasty)
    with subject.running("script") as server:
        assert not any(figure.passed for figure in await endurance.hesitant(server.url, 2))
