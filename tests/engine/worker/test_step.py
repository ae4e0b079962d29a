"""A step that runs out of memory: what is remembered gives way first, and nobody's answer is lost for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.chunk import Text
from engine.core import Request, StageInfo
from engine.errors import BatchLost, StageFailed
from engine.worker.pace import OneFrame
from engine.worker.prefix import Prefixes
from engine.worker.stage_request import StageRequest
from engine.worker.step import compute


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


class Full:
    """A stage for which there is too little memory while anything is remembered."""

    def __init__(self, error: type[Exception] = OutOfMemoryError, always: bool = False) -> None:
        self.info = StageInfo(name="full", slots=4)
        self.prefixes: Prefixes[str] = Prefixes(1000)
        self._error, self._always = error, always

    def step(self, reqs: Sequence[StageRequest]) -> list[Any]:
        if self.prefixes.size or self._always:
            raise self._error("CUDA out of memory")
        return [[Text("a", 0)] for _ in reqs]


def asked(count: int) -> list[StageRequest]:
    return [StageRequest(Request(id=f"{n}", session="", messages=()), n, OneFrame()) for n in range(count)]


def step(stage: Any, count: int) -> Sequence[Any]:
    return compute(stage, asked(count), lambda: 0.0).results


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("error", [OutOfMemoryError, MemoryError])
def test_what_is_remembered_gives_way_and_all_begin_again(count: int, error: type[Exception]) -> None:
    stage = Full(error)
    for session in "ab":
        stage.prefixes.keep(session, [1, 2], "kept", 100)
    assert [type(result) for result in step(stage, count)] == [BatchLost] * count
    assert (stage.prefixes.size, stage.prefixes.evicted) == (0, 2)
    assert step(stage, count) == [[Text("a", 0)]] * count


def test_a_request_too_large_for_the_device_ends_once_nothing_can_give_way() -> None:
    """The others of its batch begin again, alone."""
    stage = Full(always=True)
    assert [type(result) for result in step(stage, 3)] == [BatchLost] * 3
    assert [type(result) for result in step(stage, 1)] == [StageFailed]


def test_another_fault_takes_nothing_of_what_is_remembered() -> None:
    stage = Full(ValueError)
    stage.prefixes.keep("a", [1], "kept", 100)
    assert [type(result) for result in step(stage, 1)] == [StageFailed]
    assert stage.prefixes.size == 100
