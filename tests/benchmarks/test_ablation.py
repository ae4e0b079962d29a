"""What a technique saves: the same turns with it and without it. What turns it off is what a deployment may say."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from app.bench import subject
from app.bench.client import Turn, open_client
from app.bench.subject import Served
from app.bench.target import BenchError, Target
from app.commands.deployment import path_of
from app.settings import settings_of
from benchmarks import ablation
from benchmarks.ablation import TECHNIQUES, Technique, saved
from engine import ConfigError, load_config

pytestmark = pytest.mark.slow  # servers are started


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda one: one.name)
def test_without_it_is_a_configuration_that_says_one_thing_otherwise(technique: Technique) -> None:
    path = path_of("nano")
    with subject._changed(path, {**technique.both, **technique.without}) as changed:
        before, after = load_config(path), load_config(changed)
        assert settings_of(after.server)
    assert before != after
    assert (before.model, len(before.workers)) == (after.model, len(after.workers))


def test_a_misspelt_switch_is_refused() -> None:
    with (
        subject._changed(path_of("nano"), {"workers.schedul": "arrival"}) as changed,
        pytest.raises(ConfigError, match="did you mean 'schedule'"),
    ):
        load_config(changed)


def test_the_saving_is_the_median_difference_and_its_interval_stands_beside_it() -> None:
    figure = saved("x", [(10.0, 15.0), (11.0, 18.0), (9.0, 15.0)])
    assert figure.value == 6.0
    assert "10 ms with, 15 without; 95 %: 5.0 to 7.0; 3 pairs" in figure.note
    nothing = saved("x", [(10.0, 10.0)] * 3)
    assert nothing.value == 0.0, "what saves nothing is told so"


class Sides:
    """A measure of answers, some of which are silent; a server's answers are numbered."""

    def __init__(self, *silent: int, status: str = "completed") -> None:
        self.silent, self.status, self.asked = silent, status, 0

    async def __call__(self, target: Target) -> float:
        self.asked += 1
        return ablation._ms(Turn(0.0, status=self.status) if self.asked in self.silent else sounding())


def sounding() -> Turn:
    turn = Turn(0.0, status="completed")
    turn.player.receive(0.01, np.full(2400, 0.5, np.float32))
    return turn


async def test_a_silent_answer_is_asked_for_again_and_told() -> None:
    one = Target("ws://one")
    figure = await ablation._compared(Technique("x", Sides(2, 3, 5), {}), one, one, 2)
    assert figure.value == 0
    assert figure.note.endswith("2 pairs; 3 silent")
    assert "silent" not in (await ablation._compared(Technique("x", Sides(), {}), one, one, 2)).note


@pytest.mark.parametrize(("silent", "status"), [((2, 3, 4), "completed"), ((2,), "missing"), ((2,), "failed")])
async def test_too_many_silent_answers_and_one_that_failed_are_errors(silent: tuple[int, ...], status: str) -> None:
    one = Target("ws://one")
    with pytest.raises(BenchError, match="had no sound"):
        await ablation._compared(Technique("x", Sides(*silent, status=status), {}), one, one, 2)


async def test_an_answer_is_cut_off_once_it_can_be_heard(scripted: subject.Subject) -> None:
    """What follows is not measured; a model that never stops talking would be waited for in vain."""
    async with open_client(Target(scripted.url)) as client:
        whole = await client.typed(ablation.LONG)
        begun = await client.begun(ablation.LONG)
        again = await client.typed("hello")
    assert whole.complete
    assert begun.ttfa_s is not None
    assert begun.status == "cancelled"
    assert begun.player.seconds < whole.player.seconds
    assert again.complete


def test_two_servers_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def measure(target: Target) -> float:
        asked.append(target.url)
        return await ablation.typed(target)

    technique = Technique("a test", measure, {"chunks.first": 4})
    figure = ablation._pair(Served("script"), technique, 2)
    assert figure.value is not None
    one, other = asked[:2]
    assert asked == [one, other, one, other, other, one]


async def test_somebody_who_asks_beside_others_is_answered(scripted: subject.Subject) -> None:
    took_ms: Any = await asyncio.wait_for(ablation.beside_others(Target(scripted.url)), 60)
    assert took_ms > 0


def test_what_is_loaded_takes_long_to_look_through() -> None:
    figure = ablation.collection(processes=1)
    assert figure.value is not None
    assert figure.value > 0
