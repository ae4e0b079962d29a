"""Voice answers by the thousand: each is kept, with what went wrong; a run that was stopped goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.bench import client as bench_client
from app.bench import subject, voice_answers
from app.bench.client import Turn, outcome
from app.bench.sessions import counted
from app.bench.target import BenchError, Target, spoken
from app.bench.voice_answers import Diary, Record, judged
from app.client import ClientError

SPOKEN = Path(__file__).parents[2] / "data" / "spoken" / "in_211.ogg"


def sounding(**fields: Any) -> Turn:
    turn = Turn(0.0, **fields)
    turn.player.receive(0.1, np.full(2400, 0.1, np.float32))
    return turn


def failed(**details: Any) -> Turn:
    return Turn(0.0, status="failed", response={"status_details": {"type": "failed", **details}})


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (sounding(status="completed"), "completed"),
        (Turn(0.0, status="completed"), "completed without a sound"),
        (Turn(0.0, failure=ClientError("the connection is lost")), "missing: the connection is lost"),
        (failed(error={"code": "replica_lost", "message": "it was lost"}), "failed: replica_lost, it was lost"),
        (failed(reason="turn_detected"), "failed: turn_detected"),
        (Turn(0.0, status="cancelled"), "cancelled"),
    ],
)  # fmt: skip
def test_it_is_told_why_an_answer_is_not_complete(turn: Turn, told: str) -> None:
    assert outcome(turn) == told


def test_outcomes_are_counted_the_most_frequent_first() -> None:
    assert counted(["failed: lost", "completed", "completed"]) == "2 completed; 1 failed: lost"


async def test_what_went_wrong_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused() -> Turn:
        raise ClientError("no more of these", "overloaded")

    async def never() -> Turn:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(bench_client, "TURN_S", 0.01)
    assert outcome(await bench_client._turn(refused())) == "missing: no more of these"
    assert outcome(await bench_client._turn(never())) == "missing: no complete answer within 0.01 s"


def test_a_run_that_was_stopped_goes_on(
    scripted: subject.Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a killed run left of a line is made again."""
    monkeypatch.setattr(voice_answers, "USERS", 2)
    monkeypatch.setattr(voice_answers, "TURNS", 1)
    kept = tmp_path / "answers.jsonl"
    target = Target(scripted.url, speech=spoken(SPOKEN))
    asyncio.run(voice_answers.voice_answers(target, 1, kept))
    with kept.open("ab") as file:
        file.write(b'{"outcome": "compl')
    figures = asyncio.run(voice_answers.voice_answers(target, 4, kept))
    records = [msgspec.json.decode(line, type=Record) for line in kept.read_bytes().splitlines()]
    assert [record.outcome for record in records] == ["completed"] * 4
    assert all(record.ttfa_ms is not None and record.audio_s > 0 and not record.events for record in records)
    assert [figure.passed for figure in figures] == [True] * 3
    assert figures[0].name == "4 voice answers: failed"


async def test_an_answer_that_fails_is_kept_with_what_the_server_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And its user comes again as somebody new; who finds no session is one that failed."""
    opened = 0

    class Failing:
        async def typed(self, text: str) -> Turn:
            return sounding(status="completed")

        @asynccontextmanager
        async def tracing(self, count: int) -> AsyncGenerator[list[str]]:
            yield ["SpeechStarted", "error: it was lost"]

    @asynccontextmanager
    async def failing(target: Target, silence_s: float) -> AsyncGenerator[Any]:
        nonlocal opened
        opened += 1
        if opened == 3:
            raise BenchError("no session")
        yield Failing()

    async def lost(client: Any, said: Any, limit_s: float) -> Turn:
        return failed(error={"code": "replica_lost", "message": "it was lost"})

    monkeypatch.setattr(voice_answers, "open_client", failing)
    monkeypatch.setattr(voice_answers, "hear_out", lost)
    monkeypatch.setattr(voice_answers, "USERS", 1)
    monkeypatch.setattr(voice_answers, "AGAIN_S", 0)
    figures = await voice_answers.voice_answers(Target("ws://127.0.0.1:9"), 3, tmp_path / "answers.jsonl")
    diary = Diary(tmp_path / "answers.jsonl")
    diary.close()
    lost_one = Record("failed: replica_lost, it was lost", events=("SpeechStarted", "error: it was lost"))
    assert diary.records == [lost_one, Record("no session"), lost_one]
    assert not figures[0].passed
    assert figures[0].note == "2 failed: replica_lost, it was lost; 1 no session"


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("a shopping list\n")
    with pytest.raises(BenchError, match=r"notes\.txt is no record of voice answers"):
        Diary(other)
    with pytest.raises(BenchError, match="cannot keep"):
        Diary(tmp_path)
    assert other.read_text() == "a shopping list\n"


def test_without_answers_nothing_is_shown() -> None:
    assert not all(figure.passed for figure in judged([]))
