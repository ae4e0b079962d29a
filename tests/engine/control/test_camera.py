"""Frames of the user's camera in an open request: with the speech where a stage takes them, else as pictures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from engine.chunk import Chunk, Speech, Text, Transcript, Usage, VideoFrame, kinds
from engine.core import PICTURES, CameraFeed, Facets, ImagePart, Request, StageInfo
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.streamed import Streamed
from tests.engine.fakes import FakeStage, Result, Rig, request, rigged, turns, until

FRAMES = 5


def picture(number: int) -> np.ndarray:
    return np.full((2, 3, 3), number, np.uint8)


async def shown(over: asyncio.Event | None = None, frames: int = FRAMES) -> AsyncGenerator[Chunk]:
    """A turn of so many tenths of a second: a frame at the end of each."""
    for number in range(1, frames + 1):
        yield Speech(np.full(1600, number, np.int16))
        yield VideoFrame(picture(number), number / 10)
    if over is not None:
        await over.wait()


class Watching(FakeStage):
    """A stage that hears and sees by itself: it notes what came, and answers with that at the end."""

    def __init__(self) -> None:
        super().__init__("thinker", 0, self.watch, takes=kinds(Speech, VideoFrame), emits=kinds(Text))
        self.came: list[str] = []

    def open(self, req: StageRequest) -> None:
        super().open(req)
        self.came = []

    def watch(self, req: StageRequest) -> Result:
        while req.pending:
            chunk = req.pending.popleft()
            if isinstance(chunk, VideoFrame):
                self.came.append(f"{chunk.pixels.shape[:2]} {chunk.pixels.max()} at {chunk.at_s}")
            else:
                self.came.append(f"said {chunk.pcm.max()}")
        req.needs_input, req.done = not req.ended, req.ended
        return [Text("; ".join(self.came), 0)] if req.ended else []


class Looking(Streamed):
    """A thinker behind ears: it notes what it is shown before the turn is over, and what its request shows."""

    info = StageInfo(
        name="thinker", order=1, takes=kinds(Transcript), emits=kinds(Text, Usage), answers=True, prepares=True,
        facets=Facets(camera=CameraFeed()),
    )  # fmt: skip

    def __init__(self, camera: CameraFeed | None = None) -> None:
        super().__init__(StageConfig(slots=1))
        self.info = replace(self.info, facets=Facets(camera=camera))
        self.prepared, self.answered = list[list[int]](), list[list[int]]()

    async def prepare(self, request: Request) -> None:
        self.prepared.append(_pictures(request))

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        self.answered.append(_pictures(request))
        async for _ in inputs:
            pass
        yield Text("yes", 0)
        yield Usage()


def _pictures(request: Request) -> list[int]:
    return [int(part.pixels.max()) for one in request.messages for part in one.parts if isinstance(part, ImagePart)]


def ears() -> FakeStage:
    def hear(req: StageRequest) -> Result:
        assert not any(isinstance(chunk, VideoFrame) for chunk in req.pending)
        req.pending.clear()
        req.needs_input, req.done = not req.ended, req.ended
        return [Transcript("hello", final=True)] if req.ended else []

    taken = kinds(Transcript)
    return FakeStage("ears", 0, hear, takes=kinds(Speech), emits=taken, feeds=taken, answers=False)


async def text(rig: Rig, asked: Request, inputs: AsyncIterator[Chunk]) -> str:
    async with rig.open(asked, inputs) as chunks:
        return "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)])


def live() -> Request:
    return request(live=True, camera=True, wants=frozenset({"text"}))


IN_ORDER = "; ".join(f"said {n}; (2, 3) {n} at {n / 10}" for n in range(1, FRAMES + 1))


async def test_frames_come_in_their_order_among_the_speech() -> None:
    async with rigged([Watching()]) as rig:
        assert await text(rig, live(), shown()) == IN_ORDER


async def test_another_replica_is_shown_the_same_again() -> None:
    stages, over = [Watching(), Watching()], asyncio.Event()
    async with rigged(stages[:1], stages[1:]) as rig:
        answer = asyncio.create_task(text(rig, live(), shown(over)))
        await until(lambda: any(len(stage.came) == 2 * FRAMES for stage in stages))
        lost = next(i for i, stage in enumerate(stages) if stage.came)
        rig.remotes[lost].fence()
        over.set()
        assert await answer == IN_ORDER
    assert all(stage.opened for stage in stages)


async def test_a_stage_that_reads_nothing_has_few_frames_sent_to_it() -> None:
    """A camera goes on for ever: what it shows waits at its source, once as much as two bounded streams hold lies
    unread."""
    sent, deaf = 0, FakeStage("thinker", 0, takes=kinds(Speech, VideoFrame))
    blocked = asyncio.Event()

    async def adapt(req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        await blocked.wait()
        async for chunk in inputs:
            yield chunk

    async def endless() -> AsyncGenerator[Chunk]:
        nonlocal sent
        while True:
            sent += 1
            yield VideoFrame(picture(1), sent / 1000)

    deaf.adapt = adapt  # type: ignore[method-assign]
    async with rigged([deaf]) as rig, rig.open(live(), endless()):
        await turns(3000)
        assert 64 <= sent <= 64 + 32 + 2
    assert rig.idle


async def test_behind_ears_the_newest_frames_are_pictures_of_the_turn() -> None:
    thinker: Any = Looking(CameraFeed())
    async with rigged([ears()], [thinker]) as rig:
        assert await text(rig, live(), shown()) == "yes"
    newest = list(range(FRAMES + 1 - PICTURES, FRAMES + 1))
    assert thinker.answered == [newest]


async def test_one_that_looks_along_is_shown_each_frame_before_the_turn_is_over() -> None:
    thinker: Any = Looking(CameraFeed())
    over = asyncio.Event()

    async def slowly() -> AsyncGenerator[Chunk]:
        async for chunk in shown(over):
            yield chunk
            last = [[int(chunk.pixels.max())]] if isinstance(chunk, VideoFrame) else []
            await until(lambda last=last: thinker.prepared[-1:] == last or not last)

    async with rigged([ears()], [thinker]) as rig:
        answer = asyncio.create_task(text(rig, live(), slowly()))
        await until(lambda: len(thinker.prepared) >= FRAMES)
        assert (thinker.answered, rig.pools["thinker"].leased) == ([], 0)
        over.set()
        assert await answer == "yes"


@pytest.mark.parametrize("frames", [0, FRAMES])
async def test_others_are_not_woken_for_every_frame(frames: int) -> None:
    """A language model behind a URL would read the same prompt again for each."""
    thinker: Any = Looking(None)
    async with rigged([ears()], [thinker]) as rig:
        assert await text(rig, live(), shown(frames=frames)) == "yes"
    assert len(thinker.prepared) <= 1
    assert thinker.answered == [[3, 4, 5][:frames]]


async def test_frames_that_no_stage_takes_are_let_go() -> None:
    deaf = FakeStage("thinker", 0, takes=kinds(Speech), emits=kinds(Speech))
    async with rigged([deaf]) as rig, rig.open(live(), shown()) as chunks:
        assert [chunk.kind async for chunk in chunks] == ["speech"] * FRAMES


async def test_frames_that_come_at_once_are_not_looked_at_one_by_one() -> None:
    thinker: Any = Looking(CameraFeed())
    async with rigged([ears()], [thinker]) as rig:
        assert await text(rig, live(), shown(frames=50)) == "yes"
    assert thinker.prepared in ([], [[50]])
