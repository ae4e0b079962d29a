"""A step that runs out of memory: what is remembered gives way first, and then the request that came last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine.chunk import Text
from engine.core import Request, StageInfo
from engine.deployment.config import ChunkSpec
from engine.errors import BatchLost, OutOfMemory, StageFailed
from engine.ipc import messages
from engine.worker.listener import Listener
from engine.worker.loop.prefix import Prefixes
from engine.worker.loop.step import compute
from engine.worker.loop.worker import Worker
from engine.worker.out_of_memory import out_of_memory
from engine.worker.pace import OneFrame
from engine.worker.stage import guarded
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, fed, opened, turns


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


class Full:
    """A stage for which there is too little memory while anything is remembered, or for more than ``most``."""

    def __init__(self, error: type[Exception] = OutOfMemoryError, most: int = 4) -> None:
        self.info = StageInfo(name="full", slots=4)
        self.prefixes: Prefixes[str] = Prefixes(1000)
        self._error, self._most = error, most

    def step(self, reqs: Sequence[StageRequest]) -> list[Any]:
        if self.prefixes.size or len(reqs) > self._most:
            raise self._error("CUDA out of memory")
        return [[Text("a", 0)] for _ in reqs]


def broke(stage: Any, reqs: Sequence[StageRequest]) -> bool:
    return compute(stage, reqs, lambda: 0.0).broke


def asked(*arrived_s: float) -> list[StageRequest]:
    """Requests that came at these times."""
    return [
        StageRequest(Request(id=f"{at}", session="", messages=()), n, OneFrame(), listener=Listener(at))
        for n, at in enumerate(arrived_s)
    ]


def step(stage: Any, reqs: Sequence[StageRequest]) -> Sequence[Any]:
    return compute(stage, reqs, lambda: 0.0).results


def remember(stage: Full) -> None:
    for session in "ab":
        stage.prefixes.keep(session, [1, 2], "kept", 100)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [OutOfMemoryError, MemoryError])
def test_what_is_remembered_gives_way_and_all_begin_again(count: int, error: type[Exception]) -> None:
    stage, reqs = Full(error), asked(*range(count))
    remember(stage)
    assert [type(result) for result in step(stage, reqs)] == [OutOfMemory] * count
    assert (stage.prefixes.size, stage.prefixes.evicted) == (0, 2)
    assert step(stage, reqs) == [[Text("a", 0)]] * count


def test_the_request_that_came_last_ends_and_the_others_begin_again() -> None:
    """Whatever slots they have, and in both roles of one that has two."""
    reqs = asked(2.0, 5.0, 3.0, 5.0)
    found = step(Full(most=3), reqs)
    assert [type(result) for result in found] == [OutOfMemory, StageFailed, OutOfMemory, StageFailed]
    assert "this was the newest request" in str(found[1])
    assert "\n" not in str(found[1])


def test_a_request_too_large_for_the_device_ends() -> None:
    assert [type(result) for result in step(Full(most=0), asked(0.0))] == [StageFailed]


def test_work_for_one_request_alone_ends_that_one_once_nothing_can_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    stage: Any = Full()
    (req,) = asked(0.0)
    remember(stage)

    def encode(_: StageRequest) -> None:
        raise OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stage, "step", lambda reqs: [guarded(stage, req, encode) for req in reqs])
    assert [type(result) for _ in range(2) for result in step(stage, [req])] == [OutOfMemory, StageFailed]
    assert not stage.prefixes.size


def test_of_several_whose_own_work_finds_no_room_the_one_that_came_last_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stage: Any = Full()
    reqs = asked(1.0, 2.0, 3.0)

    def encode(req: StageRequest) -> list[Text]:
        if req is reqs[2]:
            return [Text("a", 0)]
        raise OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stage, "step", lambda reqs: [guarded(stage, req, encode) for req in reqs])
    assert [type(result) for result in step(stage, reqs)] == [OutOfMemory, StageFailed, list]


@pytest.mark.parametrize("own", [True, False])
def test_what_another_stage_of_the_device_remembers_gives_way_too(own: bool, caplog: pytest.LogCaptureFixture) -> None:
    stage: Any = Full(most=0)
    other: Any = Full()
    reqs = asked(0.0, 1.0)
    if own:
        remember(stage)
    remember(other)
    held = stage.prefixes.size + other.prefixes.size
    found = compute(stage, reqs, lambda: 0.0, (stage, other)).results
    assert [type(result) for result in found] == [OutOfMemory] * 2
    assert f"cleared {held} bytes of prefix caches" in caplog.text
    assert not stage.prefixes.size + other.prefixes.size
    found = compute(stage, reqs, lambda: 0.0, (stage, other)).results
    assert [type(result) for result in found] == [OutOfMemory, StageFailed]


async def test_a_worker_has_its_stages_make_room_for_each_other() -> None:
    full = FakeStage(act=short, name="a")
    other: Any = FakeStage(name="b")
    other.prefixes = Prefixes[str](1000)
    other.prefixes.keep("s", [1, 2], "kept", 100)
    sent: list[messages.Message] = []
    worker = Worker({"a": full, "b": other}, ChunkSpec(), {"a": 4, "b": 4}, sent.append)
    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)
    for message in (opened("r"), *fed("r", 1)):
        worker.receive(message)
    await turns()
    serving.cancel()
    await asyncio.wait([serving])
    assert not other.prefixes.size
    assert [one.code for one in sent if isinstance(one, messages.Failed)] == [OutOfMemory.code]


def short(req: StageRequest) -> Any:
    raise OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.01 GB, other allocations: 1.00 GB)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: not enough memory: you tried to"),
    ],
)
def test_a_device_says_in_several_ways_that_its_memory_is_full(error: Exception) -> None:
    class AcceleratorError(RuntimeError):
        """As torch names its own."""

    assert out_of_memory(error)
    assert out_of_memory(AcceleratorError(str(error)))
    assert not out_of_memory(ValueError(str(error)))
    assert not out_of_memory(AcceleratorError("CUDA error: an illegal memory access was encountered"))
    assert not out_of_memory(None)


def test_another_fault_takes_nothing_of_what_is_remembered() -> None:
    stage = Full(ValueError)
    remember(stage)
    assert [type(result) for result in step(stage, asked(0.0))] == [StageFailed]
    assert [type(result) for result in step(stage, asked(0.0, 1.0))] == [BatchLost] * 2
    assert stage.prefixes.size == 200


def test_a_stage_broke_where_it_raised_and_not_where_memory_was_short() -> None:
    """Then the device is asked whether it still answers."""
    reqs = asked(0.0, 1.0)
    assert not broke(Full(), reqs)
    assert broke(Full(ValueError, most=0), reqs)
    assert broke(Full(ValueError, most=0), reqs[:1])
    remembering = Full()
    remember(remembering)
    assert not broke(remembering, reqs)
