"""Where a request goes, through the orchestrator and through the whole engine: its worker, its session's replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from engine import Engine, EngineSpec, Request, WorkerSpec
from engine.chunk import Audio, Chunk, Output, Speech, Text
from engine.deployment.config import ChunkSpec
from tests.engine.control.test_fleet import STAGES, asked, spec
from tests.engine.control.test_orchestrator import inner, numbers
from tests.engine.fakes import FakeStage, Rig, request, rigged, x

TRIES = 20  # a choice that is drawn among two would have to fall the same way as often


async def read(rig: Rig, **fields: Any) -> None:
    async def one() -> AsyncGenerator[Chunk]:
        yield x(0)

    async with rig.open(msgspec.structs.replace(request(live=True), **fields), one()) as chunks:
        async for _ in chunks:
            pass


@pytest.mark.seed("A3.1", "A3.13")
async def test_every_request_of_a_session_goes_where_the_session_was() -> None:
    stages = [FakeStage(), FakeStage()]
    async with rigged([stages[0]], [stages[1]]) as rig:
        for i in range(TRIES):
            await read(rig, id=str(i), session="one")
        assert sum(bool(stage.batches) for stage in stages) == 1
        for i in range(TRIES):
            await read(rig, id=str(i), session=f"other{i}")
        assert all(stage.batches for stage in stages), "requests of other sessions go anywhere"


@pytest.mark.seed("A3.1", "A1.12", "A3.2")
async def test_the_slots_of_a_run_are_those_of_the_worker_that_it_is_on() -> None:
    async with rigged([inner("a", 0), FakeStage("b", 1)], [inner("a", 0), FakeStage("b", 1)]) as rig:
        for i in range(TRIES):
            asked_for = msgspec.structs.replace(request(live=True), session=str(i))
            async with rig.open(asked_for, numbers(10**6)) as chunks:
                await anext(chunks)
                first, second = [
                    {member.replica.worker for member in pool.members() if member.leases} for pool in rig.pools.values()
                ]
                assert first == second


async def turn() -> AsyncGenerator[Chunk]:
    yield Speech(np.zeros(320, np.int16))


@pytest.mark.seed("A3.1", "A1.12")
async def test_the_answer_is_made_where_the_turn_was_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ears' hop has ended by then: the hop of the answer is given its worker."""
    monkeypatch.setattr("engine.control.pool.StagePool.likely", lambda *_: None)  # else the session is there already
    async with Engine(spec(replicas=2)) as engine:
        for i in range(TRIES):
            workers: list[str] = []
            live = Request(id=str(i), session=str(i), messages=(), live=True)
            async with engine.open(live, turn()) as chunks:
                async for _ in chunks:
                    workers += [host.worker for host in chunks.hosts]
            assert len(set(workers)) == 1


async def answered(deployment: EngineSpec, times: int = 1) -> list[list[Output]]:
    """The same answer so many times at once: each replica gives it where there are as many."""
    hosts: set[str] = set()

    async def one(engine: Engine, id: str) -> list[Output]:
        got: list[Output] = []
        async with engine.open(asked("say: one two three", id, id)) as chunks:
            async for chunk in chunks:
                got.append(chunk)
                hosts.update(host.worker for host in chunks.hosts)
        return got

    async with Engine(deployment) as engine:
        answers = await asyncio.gather(*(one(engine, str(i)) for i in range(times)))
    assert len(hosts) == times
    return answers


@pytest.mark.seed("A3.4")
async def test_one_replica_answers_as_three_and_as_a_deployment_that_names_none() -> None:
    """To the last bit: the pool is in the way of a single replica, too, and changes nothing. Where sound is cut is no
    matter of time here."""
    same: dict[str, Any] = {"options": {"frames_per_word": 4}, "chunks": ChunkSpec(hurry=False)}
    unnamed = replace(spec(), workers=(WorkerSpec(stages=STAGES),), **same)
    (alone,), (named,), three = [
        await answered(unnamed),
        await answered(spec(**same)),
        await answered(spec(3, **same), 3),
    ]
    for other in (named, *three):
        for kind in (Text, Audio):
            assert _joined(alone, kind) == _joined(other, kind)
    assert len(_joined(alone, Audio)) == 3 * 4 * 960 * 4, "three words of four frames, in float32"


def _joined(chunks: list[Output], kind: type[Any]) -> bytes:
    return b"".join(
        chunk.wave.tobytes() if isinstance(chunk, Audio) else str(getattr(chunk, "text", "")).encode()
        for chunk in chunks
        if isinstance(chunk, kind)
    )


@pytest.mark.seed("A1.20")
async def test_a_worker_that_is_retired_ends_its_request_itself(caplog: pytest.LogCaptureFixture) -> None:
    """It is not cut off while nobody reads the answer, and no other replica makes the rest of it."""
    async with Engine(spec(replicas=2)) as engine, engine.open(asked("long 400")) as chunks:
        text = [chunk.text for chunk in [await anext(chunks)] if isinstance(chunk, Text)]
        (host,) = {replica.host for replica in chunks.hosts}
        retiring = asyncio.create_task(engine._fleet.retire(host))
        for _ in range(300):
            await asyncio.sleep(0)
        assert not retiring.done()
        assert not host.gone.is_set()
        text += [chunk.text async for chunk in chunks if isinstance(chunk, Text)]
        await retiring
        await host.gone.wait()
    assert "".join(text) == " ".join(f"word{i}" for i in range(400))
    assert "continues on another replica" not in caplog.text
