"""Several deployments in one process: common stages run once, and no deployment's trouble is another's."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from engine import ConfigError, Deployments, Engine, EngineSpec, RequestError, WeightsError
from engine.control.fleet import Fleet
from engine.errors import EngineError
from tests.engine.control.test_fleet import answer, process, remote
from tests.engine.deployment.test_sharing import spec as split
from tests.engine.fakes import until

BROKEN = """
from pathlib import Path
from engine.errors import WeightsError
from engine.worker.models.script import Script{kind}

class Broken(Script{kind}):
    def __init__(self, config):
        if not Path(__file__).with_suffix(".repaired").exists():
            raise WeightsError("the weights are damaged")
        super().__init__(config)
"""


def spec(name: str, thinker: str = "{}", launcher: str = "inline") -> EngineSpec:
    patient = replace(split(name).heartbeat, timeout_s=20.0)
    return replace(split(name, thinker), launcher=launcher, heartbeat=patient, empty_s=10.0)


def broken(one: EngineSpec, stage: str, folder: Path) -> EngineSpec:
    """The deployment with a stage that can be described and not loaded."""
    file = folder / f"broken_{stage}.py"
    file.write_text(BROKEN.format(kind=stage.capitalize()))
    stages = tuple(replace(it, use=f"{file}:Broken") if it.name == stage else it for it in one.stages)
    return replace(one, stages=stages)


async def started(stack: AsyncExitStack, *specs: EngineSpec) -> list[Engine]:
    deployments = Deployments(specs)
    return [await stack.enter_async_context(deployments.engine(one)) for one in specs]


def workers(engine: Engine) -> dict[str, str]:
    """The worker of each stage."""
    return {replica.stage: replica.replica for replica in engine.replicas()}


async def test_a_common_stage_runs_on_one_worker() -> None:
    async with AsyncExitStack() as stack:
        one, two = await started(stack, spec("one"), spec("two", "{frames_per_word: 2}"))
        assert workers(one) == {
            "one+two/ears": "one+two/worker0.0",
            "one/thinker": "one/worker0.0",
            "one+two/talker": "one+two/worker1.0",
            "one+two/code2wav": "one+two/worker1.0",
        }
        assert set(workers(two)) - set(workers(one)) == {"two/thinker"}
        assert await asyncio.gather(answer(one, "say: first"), answer(two, "say: second")) == ["first", "second"]
        assert (one.model.name, two.model.name) == ("one", "two")


async def test_one_deployment_has_no_labels() -> None:
    async with AsyncExitStack() as stack:
        (one,) = await started(stack, spec("one"))
        assert workers(one)["thinker"] == "worker1.0"
        assert set(one.stats()) == {"ears", "thinker", "talker", "code2wav"}


async def test_a_lost_worker_of_one_deployment_is_not_missing_in_another() -> None:
    async with AsyncExitStack() as stack:
        one, two = await started(stack, spec("one"), spec("two", "{frames_per_word: 2}"))
        remote(two, "two/worker0.0").fence()
        assert (one.ready, two.ready, two.missing) == (True, False, ("thinker",))
        assert await answer(one, "say: still here") == "still here"
        assert await answer(two, "say: back again") == "back again"


@pytest.mark.slow
async def test_a_killed_process_of_one_deployment_costs_another_no_word() -> None:
    async with AsyncExitStack() as stack:
        first, second = spec("one", launcher="local"), spec("two", "{frames_per_word: 2}", launcher="local")
        one, two = await started(stack, first, second)
        process(two, "two/worker0.0").kill()
        await until(lambda: not two.ready, 10_000)
        assert one.ready
        assert await answer(one, "long 20") == await answer(two, "long 20")


async def test_workers_stay_as_long_as_an_engine_uses_them() -> None:
    specs = spec("one"), spec("two", "{frames_per_word: 2}")
    deployments = Deployments(specs)
    async with deployments.engine(specs[1]) as two:
        async with deployments.engine(specs[0]) as one:
            assert await answer(one, "say: both") == "both"
        assert two.ready
        assert await answer(two, "say: alone") == "alone"
    async with deployments.engine(specs[0]) as one:
        assert await answer(one, "say: again") == "again"


@pytest.mark.parametrize("order", [1, -1])
async def test_a_deployment_that_does_not_start_leaves_the_others_alone(order: int, tmp_path: Path) -> None:
    specs = [spec("one"), broken(spec("two"), "thinker", tmp_path)]
    deployments = Deployments(specs[::order])
    async with deployments.engine(specs[0]) as one:
        with pytest.raises(WeightsError, match="the weights are damaged"):
            async with deployments.engine(specs[1]):
                pass
        assert await answer(one, "say: unharmed") == "unharmed"


async def test_starts_at_once_are_independent(tmp_path: Path) -> None:
    specs = [broken(spec("one"), "thinker", tmp_path), spec("two")]
    deployments = Deployments(specs)

    async def start(one: EngineSpec) -> str:
        async with deployments.engine(one) as engine:
            return await answer(engine, "say: here")

    outcomes = await asyncio.gather(*map(start, specs), return_exceptions=True)
    assert isinstance(outcomes[0], WeightsError)
    assert outcomes[1] == "here"


async def test_a_failure_is_reported_while_common_stages_still_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [broken(spec("one"), "thinker", tmp_path), spec("two")]
    deployments = Deployments(specs)
    loaded, start = asyncio.Event(), Fleet.start

    async def slow(self: Fleet) -> None:
        if self.labelled("").startswith("one+two"):
            await loaded.wait()
        await start(self)

    monkeypatch.setattr(Fleet, "start", slow)
    starting = asyncio.create_task(deployments.engine(specs[1]).__aenter__())
    await asyncio.sleep(0)
    with pytest.raises(WeightsError, match="the weights are damaged"):
        async with asyncio.timeout(20), deployments.engine(specs[0]):
            pass
    assert not starting.done()
    loaded.set()
    await (await starting).__aexit__(None, None, None)


async def test_a_common_stage_that_does_not_start_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [broken(spec("one"), "ears", tmp_path), broken(spec("two", "{frames_per_word: 2}"), "ears", tmp_path)]
    labels: list[str] = []
    start = Fleet.start

    async def counted(self: Fleet) -> None:
        labels.append(self.labelled("x"))
        await start(self)

    monkeypatch.setattr(Fleet, "start", counted)
    deployments = Deployments(specs)
    for one in specs:
        with pytest.raises(WeightsError, match="the weights are damaged"):
            async with deployments.engine(one):
                pass
    assert labels.count("one+two/x") == 1
    for one in specs:  # the first one that comes again tries it again, and the other one receives its failure
        with pytest.raises(WeightsError, match="the weights are damaged"):
            async with deployments.engine(one):
                pass
    assert labels.count("one+two/x") == 2


async def test_a_common_stage_that_was_repaired_starts_at_the_next_attempt(tmp_path: Path) -> None:
    specs = [broken(spec("one"), "ears", tmp_path), broken(spec("two", "{frames_per_word: 2}"), "ears", tmp_path)]
    deployments = Deployments(specs)
    for one in specs:
        with pytest.raises(WeightsError):
            async with deployments.engine(one):
                pass
    (tmp_path / "broken_ears.repaired").touch()
    async with deployments.engine(specs[1]) as two, deployments.engine(specs[0]) as one:
        assert [await answer(engine, "say: repaired") for engine in (one, two)] == ["repaired"] * 2


async def test_an_invalid_deployment_shares_nothing_and_says_why() -> None:
    """Its definition of a stage may be the first one, so the others must not wait for it."""
    one = replace(spec("one"), stages=(*spec("one").stages, replace(spec("one").stages[0], use="no.such", name="x")))
    deployments = Deployments([one, spec("two")])
    with pytest.raises(EngineError):
        deployments.engine(one)
    async with deployments.engine(spec("two")) as two:
        assert set(workers(two)) == {"two/ears", "two/thinker", "two/talker", "two/code2wav"}


async def test_a_cancelled_start_leaves_the_common_workers_to_the_next() -> None:
    specs = spec("one"), spec("two", "{frames_per_word: 2}")
    deployments = Deployments(specs)

    async def start(one: EngineSpec) -> str:
        async with deployments.engine(one) as engine:
            return await answer(engine, "say: here")

    first = asyncio.create_task(start(specs[0]))
    second = asyncio.create_task(start(specs[1]))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "here"
    await asyncio.wait([first])


async def test_common_workers_are_scaled_and_restarted_once() -> None:
    async with AsyncExitStack() as stack:
        one, two = await started(stack, spec("one"), spec("two", "{frames_per_word: 2}"))
        await two.scale("one+two/talker", 2)
        assert one.stats()["one+two/talker"]["replicas"] == two.stats()["one+two/code2wav"]["replicas"] == 2
        with pytest.raises(RequestError, match=r"no stage 'talker' to scale; there are one\+two/ears, two/thinker, "):
            await two.scale("talker", 2)
        for engine in (one, two):
            await engine.restart()
        incarnations = {replica.replica: replica.incarnation for engine in (one, two) for replica in engine.replicas()}
        assert set(incarnations.values()) == {2}


def test_two_deployments_on_one_device_are_refused_before_anything_starts() -> None:
    one = spec("one", launcher="local")
    workers = tuple(replace(worker, devices=(0,)) for worker in one.workers[:1])
    one = replace(one, workers=(*workers, *one.workers[1:]))
    with pytest.raises(ConfigError, match="uses the device 0"):
        Deployments([one, replace(one, name="two", queue=3)])
