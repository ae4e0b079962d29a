"""While a user speaks, what is known of the prompt is warmed up: without a slot, and dropped where the turn is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from engine.chunk import Chunk, Speech, Text, Transcript, Usage, kinds
from engine.core import IN_WRITING, Request, StageInfo
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed
from tests.engine.fakes import FakeStage, Result, request, rigged, until


class Thinker(Streamed):
    """Notes what it is to prepare, and takes for ever over it."""

    info = StageInfo(
        name="thinker", order=1, takes=kinds(Transcript), emits=kinds(Text, Usage), answers=True, prepares=True
    )

    def __init__(self, slots: int = 1) -> None:
        super().__init__(StageConfig(slots=slots))
        self.preparing, self.dropped = list[str](), list[str]()
        self.breaks, self.down = False, ""

    @property
    def unavailable(self) -> str:
        return self.down

    async def prepare(self, request: Request) -> None:
        self.preparing.append(request.id)
        if self.breaks:
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            self.dropped.append(request.id)

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        async for _ in inputs:
            pass
        yield Text("yes", 0)
        yield Usage()


def ears() -> FakeStage:
    def hear(req: StageRequest) -> Result:
        if req.pending:
            req.pending.clear()
        req.needs_input = not req.ended
        req.done = req.ended
        return [Transcript("hello", final=True)] if req.ended else []

    return FakeStage(
        "ears", 0, hear, takes=kinds(Speech), emits=kinds(Transcript), feeds=kinds(Transcript), answers=False
    )


async def spoken(over: asyncio.Event) -> AsyncGenerator[Chunk]:
    yield Speech(np.zeros(320, np.int16))
    await over.wait()


def asked(**fields: Any) -> Request:
    return replace(request(wants=IN_WRITING), **fields)


def stages() -> tuple[Any, Any]:
    return ears(), Thinker()


async def test_a_prompt_is_warmed_up_while_its_user_speaks_and_takes_no_slot() -> None:
    hearing, thinker = stages()
    over = asyncio.Event()
    async with rigged([hearing], [thinker]) as rig:
        async with rig.open(asked(live=True), spoken(over)) as chunks:
            await until(lambda: bool(thinker.preparing))
            assert rig.pools["thinker"].leased == 0
            over.set()
            assert [chunk.text async for chunk in chunks if isinstance(chunk, Text)] == ["yes"]
        assert (thinker.preparing, thinker.dropped) == (["r"], []), "the stage itself knows what to do with it"


async def test_a_turn_in_which_much_is_understood_before_its_end_is_answered() -> None:
    """Words that may still change go to the client. For a stage that begins with the commit they would only lie there,
    and once as many lie there as a run may have on its way, ears would hear no more, and the turn never end."""
    heard: list[int] = []

    def hear(req: StageRequest) -> Result:
        heard.extend(len(chunk.pcm) for chunk in req.pending if isinstance(chunk, Speech))
        req.pending.clear()
        req.needs_input, req.done = not req.ended, req.ended
        return [Transcript(f"word {len(heard)}", final=req.ended)]

    async def at_length() -> AsyncGenerator[Chunk]:
        for _ in range(2_000):
            yield Speech(np.zeros(320, np.int16))
            await asyncio.sleep(0)

    listening = FakeStage(
        "ears", 0, hear, takes=kinds(Speech), emits=kinds(Transcript), feeds=kinds(Transcript), answers=False
    )
    thinker: Any = Thinker()
    async with (
        asyncio.timeout(60),
        rigged([listening], [thinker]) as rig,
        rig.open(asked(live=True), at_length()) as chunks,
    ):
        told = [chunk async for chunk in chunks]
    assert sum(isinstance(chunk, Transcript) for chunk in told) > 2 * 64
    assert [chunk.text for chunk in told if isinstance(chunk, Text)] == ["yes"]
    assert len(heard) == 2_000


async def test_what_is_left_before_its_turn_is_over_is_dropped() -> None:
    hearing, thinker = stages()
    async with rigged([hearing], [thinker]) as rig:
        async with rig.open(asked(live=True), spoken(asyncio.Event())):
            await until(lambda: bool(thinker.preparing))
        await until(lambda: thinker.dropped == ["r"])


async def test_a_session_has_one_at_a_time() -> None:
    hearing, thinker = stages()
    async with (
        rigged([hearing], [thinker]) as rig,
        rig.open(asked(id="one", live=True), spoken(asyncio.Event())),
    ):
        await until(lambda: thinker.preparing == ["one"])
        async with rig.open(asked(id="two", live=True), spoken(asyncio.Event())):
            await until(lambda: thinker.preparing == ["one", "two"])
            assert thinker.dropped == ["one"]


@pytest.mark.parametrize("fields", [{"live": False}, {"live": True, "wants": frozenset({"transcript"})}])
async def test_what_is_typed_or_only_transcribed_prepares_nothing(fields: dict[str, Any]) -> None:
    hearing, thinker = stages()
    over = asyncio.Event()
    over.set()
    async with rigged([hearing], [thinker]) as rig:
        async with rig.open(asked(**fields), spoken(over) if fields["live"] else None) as chunks:
            async for _ in chunks:
                pass
        await until(lambda: rig.idle)
    assert not thinker.preparing


async def test_one_that_breaks_ends_nobody_s_answer() -> None:
    hearing, thinker = stages()
    thinker.breaks = True
    over = asyncio.Event()
    async with rigged([hearing], [thinker]) as rig, rig.open(asked(live=True), spoken(over)) as chunks:
        await until(lambda: bool(thinker.preparing))
        over.set()
        assert [chunk.text async for chunk in chunks if isinstance(chunk, Text)] == ["yes"]


async def test_a_stage_that_is_down_prepares_nothing() -> None:
    hearing, thinker = stages()
    thinker.down = "Its server is down."
    over = asyncio.Event()
    async with rigged([hearing], [thinker]) as rig, rig.open(asked(live=True), spoken(over)) as chunks:
        over.set()
        async for _ in chunks:
            pass
    assert not thinker.preparing


async def test_a_request_that_is_expected_is_prepared_without_a_turn_and_takes_no_slot() -> None:
    hearing, thinker = stages()
    async with rigged([hearing], [thinker]) as rig:
        rig.orchestrator.prepare(asked(id="later"))
        await until(lambda: thinker.preparing == ["later"])
        assert rig.pools["thinker"].leased == 0
        over = asyncio.Event()
        async with rig.open(asked(id="turn", live=True), spoken(over)):
            await until(lambda: thinker.preparing == ["later", "turn"])
            assert thinker.dropped == ["later"], "the session's next turn replaces it"
