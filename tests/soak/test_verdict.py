"""What counts against a soak, and what the faults excuse."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import median
from xml.etree import ElementTree

import pytest

from app.bench.figures import Figure
from tests.soak import report
from tests.soak.journal import Answer, Entry, Fault, Journal, Look, Lost, Rest, Started, read
from tests.soak.slope import slope
from tests.soak.verdict import beyond, minutes_of_load, verdict

START = Started(0, 1000.0, "2030-01-01", 4)
KILL = Fault(0, 1100.0, "kill", 1104.0, note="worker1, back after 2.5 s")
LOSS = Fault(0, 1200.0, "loss", 1206.0, "caller3")


def answer(at_s: float, *gaps_s: float, user: str = "user0", life: int = 0) -> Answer:
    """One of ten seconds of sound that ran dry at these times, for 20 ms each."""
    return Answer(life, at_s, user, "asks", "completed", 0.05, 10.0, tuple((one, one + 0.02) for one in gaps_s))


def look(minute: float, memory_mb: float, life: int = 0) -> Look:
    memory = {"server": memory_mb, "worker0": 200.0, "worker1": 100.0 * minute}
    cores = {"server": 0.1, "workers": 0.4, "users": 0.1, "others": 0.0}
    return Look(life, 1000.0 + 60 * minute, memory, memory, memory, 20, 50, 9, 4, 0.0, cores)


def rest(when: str, tasks: int = 10, sessions: int = 0) -> Rest:
    return Rest(0, 2000.0, when, 500.0, 40, 9, tasks, sessions, 0)


def figure(name: str, *entries: Entry, minutes: float = 30.0) -> Figure:
    found = [one for one in verdict([START, *entries], minutes) if name in one.name]
    assert len(found) == 1
    return found[0]


def test_a_worker_that_nobody_killed_counts_and_its_memory_is_two_series() -> None:
    minutes = [look(minute, 100.0) for minute in range(61)]
    assert figure("workers lost", *minutes).passed
    assert figure("growth of memory, worker0", *minutes).value == pytest.approx(0.0)
    lost = Lost(0, 1300.0, "worker0")
    assert not figure("workers lost", *minutes, lost).passed
    assert not [one for one in verdict([START, *minutes, lost], 60.0) if "worker0" in one.name]


@pytest.mark.parametrize(
    ("heard", "counted"),
    [
        (answer(1050.0, 1040.0), 1),
        (answer(1110.0, 1099.99), 0),
        (answer(1110.0, 1103.0), 0),
        (answer(1110.0, 1103.0, 1104.5), 1),
        (answer(1110.0, 1103.0, life=1), 1),
        (answer(1210.0, 1205.0, user="caller3"), 0),
        (answer(1210.0, 1205.0, user="user0"), 1),
    ],
    ids=["before", "into a kill", "in its reach", "behind it", "another life", "who lost packets", "another than that"],
)
def test_an_underrun_counts_unless_a_fault_reaches_it(heard: Answer, counted: int) -> None:
    assert len(list(beyond([START, KILL, LOSS, heard]))) == counted
    rate = figure("underruns", KILL, LOSS, heard)
    assert rate.value == pytest.approx(counted * 360.0)
    assert rate.passed == (not counted)


def test_an_answer_that_fails_counts_unless_a_fault_reaches_it() -> None:
    failed = [Answer(0, at_s, "user0", "asks", "ClientError: gone") for at_s in (1050.0, 1102.0)]
    assert figure("answers that failed", KILL, *failed).value == 1.0


@pytest.mark.parametrize(("growth_mb", "held"), [(0.0, True), (4.0, False)])
def test_a_leak_of_4_mb_an_hour_is_too_much(growth_mb: float, held: bool) -> None:
    """Beyond the first ten minutes; what was killed has no slope."""
    looks = [look(m / 4, 100 + (20 if m < 40 else 0) + m % 3 / 10 + growth_mb * m / 240) for m in range(240)]
    assert figure("growth of memory, server", KILL, *looks).passed == held
    assert not [one for one in verdict([START, KILL, *looks], 60.0) if "worker1" in one.name]


def teeth(seed: int, growth_mb: float, minutes: int = 62) -> list[Look]:
    """A process that needs 20 MB beside its 120, takes them within a minute, and gives some back when it is time."""
    draw, held_mb, looks = random.Random(seed), 0.0, list[Look]()
    for number in range(12 * minutes):
        held_mb += (20 - held_mb) * draw.uniform(0.0, 0.25)
        if draw.random() < 1 / 24:
            held_mb -= draw.uniform(0.3, 0.9) * held_mb
        looks.append(look(number / 12, 120 + held_mb + draw.gauss(0, 0.1) + growth_mb * number / 720))
    return looks


def test_teeth_of_memory_that_is_given_back_are_no_growth_and_hide_none() -> None:
    """The control: medians of minutes, which fall on the teeth as chance has it."""
    passed = {0.0: 0, 4.0: 0}
    by_medians = 0
    for seed in range(10):
        for growth_mb in passed:
            looks = teeth(seed, growth_mb)
            passed[growth_mb] += figure("growth of memory, server", *looks).passed
        rest = [one.memory_mb["server"] for one in teeth(seed, 0.0)]
        minutes = [median(rest[at : at + 12]) for at in range(120, len(rest), 12)]
        found = slope([n / 60 for n in range(len(minutes))], minutes)
        by_medians += found is not None and found.bound <= 2.0
    assert passed[0.0] >= 8
    assert passed[4.0] == 0
    assert by_medians <= 2


def test_a_slope_of_too_few_minutes_is_missing() -> None:
    assert not figure("growth of memory, server", *(look(m, 100.0) for m in range(15))).passed


def test_sessions_that_stay_are_held_by_nobody() -> None:
    name = "held by nobody"
    assert figure(name, rest("base"), rest("end")).passed
    left = figure(name, rest("base"), rest("end", tasks=15, sessions=1))
    assert not left.passed
    assert left.note == "tasks 10 → 15; sessions 0 → 1"
    assert not figure(name, rest("base")).passed, "a life that was stopped has no end"


def test_minutes_count_over_all_lives(tmp_path: Path) -> None:
    again = Started(1, 1000.0, "2030-01-02", 4)
    entries = [START, look(0.0, 1.0), look(12.0, 1.0), again, look(0.0, 1.0, 1), look(8.0, 1.0, 1)]
    assert minutes_of_load(entries) == 20.0
    assert [row[0] for row in report.Minutes(entries).rows()] == ["0", "12", "20"]


def test_half_a_line_is_skipped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as to:
        to.add(START)
    path.write_bytes(path.read_bytes() + b'{"type": "Fau')
    with Journal(path) as to:
        to.add(KILL)
    assert read(path) == [START, KILL]


def test_the_report_says_what_was_missed_and_draws_it(tmp_path: Path) -> None:
    entries = [START, look(0.0, 100.0), KILL, answer(1050.0, 1040.0), look(1.0, 100.0), rest("base"), rest("end")]
    assert not report.write(tmp_path, entries, 1.0, 10.0)
    text = (tmp_path / "report.md").read_text()
    assert "minute 0.67: user0, asks, 20 ms" in text
    assert "reaches everybody for 4.0 s" in text
    pictures = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert pictures == ["cores.svg", "first_sound.svg", "held.svg", "memory.svg"]
    for name in pictures:
        ElementTree.parse(tmp_path / name)
        assert f"({name})" in text
