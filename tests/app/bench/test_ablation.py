"""What a technique saves: the same turns with it and without it. What turns it off is what a deployment may say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.bench import ablation, subject
from app.bench.ablation import TECHNIQUES, Technique, saved
from app.bench.target import Target
from app.commands.deployment import path_of
from app.settings import settings_of
from engine import ConfigError, load_config


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


def test_two_servers_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def measure(target: Target) -> float:
        asked.append(target.url)
        return await ablation.typed(target)

    technique = Technique("a test", measure, {"chunks.first": 4})
    figure = ablation._pair("script", technique, None, 2)
    assert figure.value is not None
    one, other = asked[:2]
    assert asked == [one, other, one, other, other, one]


async def test_somebody_who_asks_beside_others_is_answered() -> None:
    with subject.running("script") as server:
        took_ms: Any = await asyncio.wait_for(ablation.beside_others(Target(server.url)), 60)
    assert took_ms > 0


def test_what_is_loaded_takes_long_to_look_through() -> None:
    figure = ablation.collection()
    assert figure.value is not None
    assert figure.value > 0
