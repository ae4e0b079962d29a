"""A device that answers no more: its worker ends, whatever broke first, and no request is told that it failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.core import StageInfo
from engine.deployment.config import ChunkSpec
from engine.errors import StageFailed
from engine.ipc import messages
from engine.worker.loop.worker import Worker
from engine.worker.stage import guarded
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Broken
from tests.engine.fakes import FakeStage, Result, fed, opened, turns


class Lost(RuntimeError):
    """As torch names an error of its device: AcceleratorError."""


def illegal(req: StageRequest) -> Any:
    raise Lost("CUDA error: an illegal memory access was encountered")


class Guarding(FakeStage):
    """The error comes in work for one request."""

    def step(self, reqs: Any) -> list[Result]:
        return [guarded(self, req, illegal) for req in reqs]  # type: ignore[misc]


class Opening(FakeStage):
    def open(self, req: StageRequest) -> None:
        illegal(req)


STAGES = {
    "the whole step": lambda: FakeStage(act=illegal),
    "one request's part": Guarding,
    "the opening": Opening,
}


async def served(stage: FakeStage, answers: bool) -> tuple[list[messages.Message], BaseException | None]:
    """What a worker sent, and what ended it, when two requests came to a stage."""
    sent: list[messages.Message] = []
    worker = Worker({"a": stage}, ChunkSpec(), {"a": 4}, sent.append, device_answers=lambda: answers)
    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)
    for message in (opened("r"), opened("s"), *fed("r", 1), *fed("s", 2)):
        worker.receive(message)
    await turns()
    ended = serving.done()
    serving.cancel()
    [error] = await asyncio.gather(serving, return_exceptions=True)
    return sent, error if ended else None


def failures(sent: list[messages.Message]) -> int:
    return sum(isinstance(message, messages.Failed) for message in sent)


@pytest.mark.parametrize("where", STAGES)
async def test_a_worker_ends_with_its_device(where: str) -> None:
    sent, error = await served(STAGES[where](), answers=False)
    assert isinstance(error, ExceptionGroup)
    assert error.subgroup(Broken)
    assert not failures(sent), "the requests go on elsewhere"


@pytest.mark.parametrize("where", STAGES)
async def test_where_the_device_answers_the_requests_fail_and_the_worker_goes_on(where: str) -> None:
    sent, error = await served(STAGES[where](), answers=True)
    assert error is None
    assert failures(sent) == 2


async def test_what_goes_well_asks_no_device() -> None:
    asked: list[int] = []
    sent: list[messages.Message] = []
    worker = Worker(
        {"a": FakeStage()}, ChunkSpec(), {"a": 4}, sent.append, device_answers=lambda: bool(asked.append(1))
    )
    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(0)
    for message in (opened("r"), *fed("r", 1), messages.End("r")):
        worker.receive(message)
    await turns()
    assert [type(one) for one in sent if isinstance(one, messages.Emit | messages.End)] == [messages.Emit, messages.End]
    assert not asked
    serving.cancel()
    await asyncio.wait([serving])


def test_the_error_of_a_step_is_the_stages_and_names_nothing_within() -> None:
    error = guarded(Guarding(), StageRequest(opened("r").request, 0, None, info=StageInfo()), illegal)  # type: ignore[arg-type]
    assert isinstance(error, StageFailed)
    assert "illegal" not in str(error)
