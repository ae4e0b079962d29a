"""Ephemeral secrets: found while they live, bounded, forgotten."""

from __future__ import annotations

import pytest

from app.access.client_secrets import ClientSecrets, TooManySecrets
from app.limits.memory_budget import MemoryBudget, MemoryFull
from app.limits.principal import Principal


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.fault("S2.2")
def test_a_secret_is_found_until_it_expires() -> None:
    clock = Clock()
    secrets = ClientSecrets(4, clock)
    one = secrets.issue({"instructions": "Be kind."}, 10)
    assert one.value.startswith("ek_")
    assert secrets.find(one.value) is one
    assert secrets.find(one.value + "0") is None
    assert secrets.find("ek_\udcff") is None
    clock.now_s += 9.999
    assert secrets.find(one.value) is one
    clock.now_s += 0.001
    assert secrets.find(one.value) is None


@pytest.mark.fault("S2.2")
def test_there_are_only_so_many_and_the_expired_make_room() -> None:
    clock = Clock()
    secrets = ClientSecrets(2, clock)
    short, long = secrets.issue({}, 10), secrets.issue({}, 100)
    with pytest.raises(TooManySecrets):
        secrets.issue({})
    assert secrets.find(short.value) is short
    clock.now_s += 10
    another = secrets.issue({})
    assert [secrets.find(one.value) for one in (short, long, another)] == [None, long, another]


@pytest.mark.fault("S5.1")
def test_no_two_are_alike() -> None:
    secrets = ClientSecrets(50)
    assert len({secrets.issue({}).value for _ in range(50)}) == 50


def test_settings_are_counted_as_held_until_the_secret_is_over() -> None:
    clock, memory = Clock(), MemoryBudget(20_000)
    secrets = ClientSecrets(50, clock, memory=memory)
    settings = {"tools": [{"name": "look", "parameters": {"x": [[]] * 1000}}]}
    made = [secrets.issue(settings, lifetime_s) for lifetime_s in (10, 100, 100)]
    assert made[0].session == settings
    assert memory.held == memory.held_of("secrets") == sum(one.size for one in made)
    assert len(made[0].settings) < made[0].size < 2 * len(made[0].settings)
    made.append(secrets.issue(settings))
    with pytest.raises(MemoryFull):
        secrets.issue(settings)
    secrets.withdraw(made[1].maker, made[1].value)
    clock.now_s += 10
    before = memory.held
    secrets.forget()
    assert memory.held == before - made[0].size
    secrets.withdraw(Principal())
    assert memory.held == 0
