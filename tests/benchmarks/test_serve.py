"""`benchmarks.serve`: the loads, and what each wrong answer looks like in the figures."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console

from app.bench import subject
from app.commands.server import Address, RemoteServer
from benchmarks import program
from benchmarks.loads import Answer, Kind, Load, Plan, alike, ask, loads
from benchmarks.serve import Report, statistics_of
from engine import Audio, AudioPart, EngineError, Output, Request, Transcript

pytestmark = pytest.mark.slow  # servers are started

SAID = ("one", "two", "three")
KIND = Kind("default voice", tuple(Request(id="", session="", messages=(), say=text) for text in SAID))
PLAN = Plan(at_once=(1, 2), rate=50.0, count=6)


def tone(text: str) -> np.ndarray:
    """A tenth of a second that no other text sounds like."""
    return (0.1 * np.sin(np.arange(2400) * sum(map(ord, text)) / 3000)).astype(np.float32)


@dataclass
class Voice:
    """A server that says each text as a tone, and hears its own; ``wrong`` is what it does to every third answer."""

    wrong: str = ""
    heard: str = "one"
    asked: int = 0

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Voice.Said]:
        if request.messages and isinstance(request.messages[-1].parts[0], AudioPart):
            yield Voice.Said([Transcript(self.heard, final=True)])
            return
        self.asked += 1
        wrong = self.wrong if self.asked > len(SAID) and self.asked % 3 == 0 else ""
        if wrong == "refused":
            raise EngineError("not today")
        text = str(request.say)
        wave = tone("three" if wrong == "another's" and text != "three" else "one" if wrong == "another's" else text)
        pieces = [wave[:1000], wave[1000 : -1 if wrong == "cut" else None]]
        if wrong == "silent":
            pieces = [np.zeros_like(piece) for piece in pieces]
        yield Voice.Said([Audio(piece) for piece in pieces], late=[Audio(wave)] if wrong == "late" else [])

    class Said:
        def __init__(self, chunks: list[Output], late: list[Output] | None = None) -> None:
            self.ended = False
            self._chunks, self._late = chunks, late or []

        async def __aiter__(self) -> AsyncIterator[Output]:
            for chunk in self._chunks:
                await asyncio.sleep(0)
                yield chunk
            self.ended = True
            for chunk in self._late:
                yield chunk


async def figures(server: Any, plan: Plan = PLAN) -> dict[str, float | None]:
    """The figures of all loads on one server, by the end of their names."""
    report = Report()
    report.loads = await loads(server, plan, KIND)
    await report.listen(server, report.loads[0])
    return {figure.name.split(": ")[1]: figure.value for figure in report.figures(exact=True)}


FINE = {
    "failed": 0, "another's sound": 0, "not the sound that they have alone": 0, "sound behind the end": 0,
    "not heard back": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "counted"),
    [
        ("", {}),
        ("refused", {"failed": 6}),
        ("silent", {"failed": 6}),
        ("cut", {"not the sound that they have alone": 6}),
        ("another's", {"not the sound that they have alone": 6, "another's sound": 6}),
        ("late", {"sound behind the end": 6, "not the sound that they have alone": 6}),
    ],
)
async def test_every_wrong_answer_is_counted(wrong: str, counted: dict[str, float]) -> None:
    assert await figures(Voice(wrong)) == {**FINE, **counted}


async def test_a_load_has_as_many_users_as_it_says() -> None:
    under_way, most = 0, 0

    class Counted(Voice):
        @asynccontextmanager
        async def open(self, request: Request) -> AsyncGenerator[Voice.Said]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                async with super().open(request) as said:
                    await asyncio.sleep(0.01)
                    yield said
            finally:
                under_way -= 1

    found = await loads(cast("RemoteServer", Counted()), Plan(at_once=(5,), rate=1000.0, count=12), KIND)
    assert [len(load.answers) for load in found] == [12, 12]
    assert found[0].name == "5 at once"
    assert most >= 5


async def test_what_a_server_does_not_answer_is_no_load() -> None:
    class Mute(Voice):
        @asynccontextmanager
        async def open(self, request: Request) -> AsyncGenerator[Voice.Said]:
            raise EngineError("it has no voice")
            yield Voice.Said([])

    with pytest.raises(EngineError, match="default voice: it has no voice"):
        await loads(cast("RemoteServer", Mute()), PLAN, KIND)


def test_numbers_are_of_complete_answers() -> None:
    answers = [Answer(0.0, 0, ended_s=1.0), Answer(0.0, 0, ended_s=2.0), Answer(0.0, 0, ended_s=4.0, failure="no")]
    for answer in answers[:2]:
        answer.player.receive(answer.ended_s / 2, np.full(12_000, 0.1, np.float32))
    found = statistics_of(Load(KIND, "3 at once", 2, tuple(answers), (tone("one"),)))
    assert (found["answers"], found["complete"], found["replicas"]) == (3, 2, 2)
    assert found["answers_per_s"] == pytest.approx(2 / 4)
    assert found["sound_s_per_s"] == pytest.approx(1 / 4)
    assert found["first_ms"] == pytest.approx((750, 750, 995))
    assert found["whole_s"] == pytest.approx((1.5, 1.5, 1.99))
    assert found["rtf"] == pytest.approx((3.0, 3.0, 3.98))


def test_rounding_is_no_difference_and_a_sample_less_is() -> None:
    wave = tone("one")
    assert alike(wave, wave + np.float32(1e-4))
    assert not alike(wave, wave[:-1])
    assert not alike(wave, wave * np.float32(0.9))


@pytest.mark.parametrize("given", ["", "0", "1,", "-3", "many", "1.5"])
def test_a_list_of_numbers_is_checked(given: str) -> None:
    assert program.numbers("1, 8,16") == (1, 8, 16)
    with pytest.raises(argparse.ArgumentTypeError, match="is not a list of positive integers"):
        program.numbers(given)


@pytest.mark.timeout(300)  # a server is started, on whatever machine
async def test_a_server_answers_everybody_as_it_answers_one() -> None:
    report = Report()
    with subject.running("script", changes={"workers.replicas": 2}) as server:
        async with RemoteServer(Address(server.url)) as asked:
            assert (await ask(asked, KIND, 0)).outcome == "completed"
        await report.measure(Address(server.url), Plan(at_once=(1, 4), rate=20.0, count=6), replicas=2)
    assert [load.name for load in report.loads] == ["1 at once", "4 at once", "20 a second"] * 2
    assert [figure.value for figure in report.figures(exact=True)[:4]] == [0.0] * 4
    report.show(Console(width=200, file=(shown := StringIO())))
    assert "20 a second" in shown.getvalue()


def test_an_answer_that_differs_says_from_where_on() -> None:
    alone = tone("one")
    other, longer = alone.copy(), np.append(alone, alone)
    other[1200:] += 0.5
    answers = tuple(Answer(0.0, 0, ended_s=1.0) for _ in range(3))
    for answer, wave in zip(answers, (alone, other, longer), strict=True):
        answer.player.receive(0.5, wave)
    load = Load(KIND, "3 at once", 1, answers, (alone,))
    assert load.partings == ["default voice, question 1 from 0.05 s", "default voice, question 1 from 0.10 s"]
