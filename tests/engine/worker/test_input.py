"""How a stage comes by its input: it waits for it once, and gets it once, whenever it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from engine.chunk import Chunk
from engine.ipc import messages
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import FakeStage, Result, fed, opened, turns, working, x

NOTHING = frozenset[str]()


class Waiting(FakeStage):
    """Counts how often it began to wait for its input."""

    waits = 0

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        self.waits += 1
        async for chunk in inputs:
            yield chunk


class Beginning(FakeStage):
    """Needs no input: gives one chunk at once, another for each row."""

    def __init__(self) -> None:
        super().__init__("a", 0, self.give, emits=NOTHING)

    def open(self, req: StageRequest) -> None:
        req.needs_input = False

    def give(self, req: StageRequest) -> Result:
        req.needs_input, req.done = True, req.ended and not req.pending
        return [req.pending.popleft() if req.pending else x("first")]


@pytest.mark.seed("A2.1")
async def test_the_first_stage_is_never_held_and_the_next_steps_when_its_input_is_there() -> None:
    first, second = Beginning(), Waiting("b", 1)
    async with working(first, second) as desk:
        desk.put(opened("r", "a", "b"))
        await turns()
        assert (len(first.batches), len(second.batches)) == (1, 1), "nothing was fed, and yet both have stepped"
        assert desk.data("r") == ["first"], "the step that was made had its input"
        await turns(50)
        assert (len(first.batches), len(second.batches)) == (1, 1), "without further input there is no step"
        desk.put(*fed("r", 2), messages.End("r"))
        await desk.ended("r")
        assert desk.data("r")[:2] == ["first", 2]
        assert second.waits == 1


@pytest.mark.seed("A2.2")
@pytest.mark.parametrize("early", range(4))
@pytest.mark.parametrize("pause", range(6))
async def test_what_comes_before_while_and_after_it_is_waited_for_is_delivered_once(early: int, pause: int) -> None:
    """``early`` chunks come in the very turn that opens the run, when nobody waits for them yet."""
    stage = Waiting()
    async with working(stage) as desk:
        desk.put(opened("r"), *fed("r", *range(early)))
        for n in range(early, 6):
            await turns(pause)
            desk.put(*fed("r", n))
        desk.put(messages.End("r"))
        await desk.ended("r")
        assert desk.data("r") == list(range(6))
        assert stage.waits == 1
