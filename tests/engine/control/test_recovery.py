"""Requests of a step that broke: what can be repeated begins again, and what cannot ends with one sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from engine.control import hops
from engine.errors import EngineError, StageFailed
from engine.worker.stage_request import StageRequest
from tests.engine.control.test_orchestrator import Source, settled
from tests.engine.fakes import Result, Rig, data_of, request, rigged, x


class Breaking(Source):
    """Gives numbers; its first step of two requests which both have some breaks."""

    broken = False

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        if len(reqs) == 2 and all(req.state for req in reqs) and not self.broken:
            self.broken = True
            raise ValueError("nobody knows of which request")
        return super().step(reqs)


async def both(rig: Rig, inputs: bool = False) -> list[list[int] | EngineError]:
    """What two requests at once are given."""

    async def spoken():
        yield x(0)

    async def read(id: str) -> list[int] | EngineError:
        try:
            async with rig.open(request(id=id, live=inputs), spoken() if inputs else None) as chunks:
                return [data_of(chunk) async for chunk in chunks]
        except EngineError as error:
            return error

    return list(await asyncio.gather(read("one"), read("two")))


async def test_what_a_stage_gives_again_begins_again() -> None:
    async with rigged([Breaking(50)]) as rig:
        assert await both(rig) == [list(range(1, 51))] * 2
        await settled(rig)


@pytest.mark.parametrize("kept", [True, False])
async def test_what_it_would_not_give_again_ends_with_one_sentence(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No replica was lost, so none is to blame, and no other is tried."""
    info: dict[str, Any] = {"replay": "never"} if kept else {}
    monkeypatch.setattr(hops, "BYTES_REPLAYED", hops.BYTES_REPLAYED if kept else 0)
    async with rigged([Breaking(50, **info)], [Source(50, **info)]) as rig:
        rig.pools["a"]._choose = lambda members: members[0]
        for error in await both(rig, inputs=not kept):
            assert type(error) is StageFailed
            assert str(error) == (
                "The stage a failed while it computed this answer; the server's log says why. "
                "The rest of the answer is lost; try again."
            )
        await settled(rig)
