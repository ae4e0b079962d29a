"""Several deployments: their names can be parts of URLs and differ, and one that did not start is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from app import engine_host
from app.engine_host import FIRST_RETRY_S, LAST_RETRY_S
from app.engine_hosts import EngineHosts, named
from app.service import Service
from engine import ConfigError, EngineError, EngineSpec, WeightsError, parse_config
from engine.aio.back_off import back_off_s
from tests.app.rig import eventually, script_spec
from tests.app.second_model import model_of

DAMAGED = WeightsError("the weights are damaged")
INVALID = ConfigError("stages: must not be empty")


def test_two_models_of_one_name_are_one_clear_error() -> None:
    with pytest.raises(ConfigError, match=r"two configurations are called 'second'\. Set a different `name`"):
        Service(model_of("second"), others=[model_of("second")])


@pytest.mark.parametrize("name", ["a/b", "a b", "Ω", "a?b", "..", "a" * 65, "a+b", "a%20b"])
def test_a_name_that_no_url_can_have_is_one_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"can't be part of a URL. Set a `name`"):
        named([replace(script_spec(), name=name), model_of("x")])


def test_a_model_that_cannot_be_described_needs_a_name() -> None:
    with pytest.raises(ConfigError, match=r"'no.such\+no.such' can't be part of a URL. Set a `name`"):
        named([parse_config("stages: [{use: no.such}, {use: no.such}]"), model_of("x")])


def test_a_model_without_a_name_has_its_family_s() -> None:
    assert [spec.name for spec in named([script_spec(), model_of("second")])] == ["script", "second"]


def test_one_configuration_may_have_any_name() -> None:
    assert Service(replace(script_spec(), name="a/b")).hosts.of("a/b").name == ""


class Starts:
    """The starts of engines: each of a model's errors fails one, and then it runs."""

    def __init__(self, **errors: list[EngineError]) -> None:
        self.tried: list[str] = []
        self._errors = errors

    @asynccontextmanager
    async def engine(self, spec: EngineSpec) -> AsyncGenerator[Any]:
        name = str(spec.name)
        self.tried.append(name)
        if self._errors.get(name):
            raise self._errors[name].pop(0)
        yield SimpleNamespace(model=SimpleNamespace(name=name), ready=True, missing=(), unavailable={})


@asynccontextmanager
async def started(starts: Starts, *names: str) -> AsyncGenerator[tuple[EngineHosts, list[str]]]:
    """The hosts of models, and what they report."""
    reported: list[str] = []
    hosts = EngineHosts([model_of(name) for name in names], starts.engine, lambda: None)
    hosts.on_ready = lambda: reported.append("ready")
    hosts.on_failure = lambda: reported.append("failure")
    hosts.start()
    yield hosts, reported
    await hosts.stop()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_host, "FIRST_RETRY_S", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_deployment_that_did_not_start_is_tried_again_and_the_server_is_ready_once() -> None:
    starts = Starts(b=[DAMAGED, DAMAGED])
    async with started(starts, "a", "b") as (hosts, reported):
        await eventually(lambda: hosts.of("b").state == "ready")
        assert starts.tried.count("b") == 3
        assert hosts.of("b").health() == {}
        assert reported == ["ready"]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("names", "error"), [(["a", "b"], INVALID), (["b"], DAMAGED)])
async def test_neither_an_invalid_nor_an_only_deployment_is_tried_again(names: list[str], error: EngineError) -> None:
    starts = Starts(b=[error])
    async with started(starts, *names) as (hosts, _):
        await eventually(lambda: hosts.of("b").state == "failed")
        for _ in range(20):
            await asyncio.sleep(0)
        assert starts.tried.count("b") == 1


async def test_a_server_whose_deployments_all_failed_stays_failed() -> None:
    async with started(Starts(a=[DAMAGED], b=[DAMAGED]), "a", "b") as (hosts, reported):
        await eventually(lambda: bool(reported))
        hosts.of("b").failure = None  # its retry starts it while the server ends
        assert (hosts.failure, reported) == (DAMAGED, ["failure"])


def test_retries_are_delayed_as_those_of_lost_workers() -> None:
    assert [back_off_s(n, FIRST_RETRY_S, LAST_RETRY_S) for n in (0, 1, 2, 5, 6, 1000)] == [
        0.5,
        1.0,
        2.0,
        16.0,
        30.0,
        30.0,
    ]
