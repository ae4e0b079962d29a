"""A run that goes on elsewhere: what was left is passed on again, a state is gone on behind, nothing comes twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.chunk import Audio, Checkpoint, Chunk, Codes, Counts, Text, kinds
from engine.core import StageInfo
from engine.delivered import RecoveryLog, count
from engine.ipc import messages
from engine.worker.loop.recovery import RunRecovery
from engine.worker.pace import OneFrame
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import Desk, FakeStage, Result, data_of, opened, request, until, working

LAST = 60
EVERY = 7
NOTHING = frozenset[str]()


class Counter(FakeStage):
    """Gives the numbers up to LAST, and every so often leaves how far it is; ``steps`` are those it made here."""

    def __init__(self, stateful: bool, name: str = "a", **info: Any) -> None:
        passed = {"emits": NOTHING, "feeds": kinds(Codes), "checkpoints": kinds(Codes)}
        super().__init__(name, 0, self.count, **(passed | info))
        self.stateful, self.steps = stateful, 0

    def open(self, req: StageRequest) -> None:
        req.state = req.checkpoint["n"] if req.checkpoint else 0
        req.needs_input = False

    def count(self, req: StageRequest) -> Result:
        self.steps += 1
        req.state += 1
        req.done = req.state == LAST
        chunks: list[Chunk] = [Codes(np.array([[req.state]], np.int16))]
        if self.stateful and req.state % EVERY == 0:
            chunks.append(Checkpoint({"n": req.state}))
        return chunks


def numbers(desk: Desk) -> list[int]:
    emits = [emit.chunk for emit in desk.of(messages.Emit, "r") if emit.onward]
    return [number for chunk in emits for number in np.ravel(data_of(chunk)).tolist()]


def left_by(desk: Desk, info: StageInfo) -> tuple[Counts, RecoveryLog]:
    """What a server knows of a run that was lost by now."""
    onward: Counts = {}
    kept = RecoveryLog()
    for emit in desk.of(messages.Emit, "r"):
        for chunk in emit.kept:
            kept.note(chunk)
        if emit.onward:
            count(onward, emit.chunk)
    return onward, kept


@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.parametrize("at", [1, 6, 8, 33, 59])
async def test_it_goes_on_where_it_was_and_makes_again_what_its_state_does_not_cover(at: int, stateful: bool) -> None:
    async with working(Counter(stateful)) as desk:
        desk.put(opened("r", credit=at))
        await until(lambda: len(numbers(desk)) == at)
        onward, kept = left_by(desk, desk.worker.stages["a"].info)
        before = numbers(desk)
    stage = Counter(stateful)
    async with working(stage) as desk:
        resume = messages.Resume({}, onward, None, kept.chunks())
        desk.put(messages.Open("r", request(id="r"), ("a",), 64, None, resume))
        await desk.ended("r")
        assert before + numbers(desk) == list(range(1, LAST + 1))
    # A state leaves with what is sent next, so that the newest may have been lost.
    assert LAST - at <= stage.steps <= (LAST - at + EVERY if stateful else LAST)
    assert stateful or stage.steps == LAST


async def test_what_was_left_reaches_the_next_stage_at_once_even_where_none_goes_on_behind_it() -> None:
    """The talker need not wait until a thinker has thought again what was kept of its words."""
    seen: list[int] = []

    def take(req: StageRequest) -> Result:
        if req.pending:
            seen.append(int(req.pending.popleft().frames[0, 0]))
        req.done = req.ended and not req.pending
        return []

    first = Counter(stateful=False)
    kept = tuple(Codes(np.array([[n]], np.int16)) for n in range(1, 9))
    async with working(first, FakeStage("b", 1, take)) as desk:
        desk.put(messages.Open("r", request(id="r"), ("a", "b"), 64, None, messages.Resume({}, {}, None, kept)))
        await until(lambda: len(seen) == 8)
        assert first.steps < 8
        await desk.ended("r")
    assert seen == list(range(1, LAST + 1))


def test_what_a_state_covers_is_not_left_out_a_second_time() -> None:
    """Sound that a state covers is not made again: what comes next is new."""
    info = StageInfo(name="v", order=0, emits=kinds(Audio))
    state = Checkpoint({}, "v", {"audio": 24_000})
    recovery = RunRecovery(messages.Resume({"audio": 30_000, "text": 4}, {}, 1.0, (state,)))
    req = StageRequest(request(), 0, OneFrame(), info=info, kept=recovery.kept(info))
    recovery.begin(req)
    assert (req.made, recovery.covered_s) == ({"audio": 24_000}, 1.0)
    new = recovery.for_client(Audio(np.zeros(10_000, np.float32), ()))
    assert isinstance(new, Audio), "of what is made behind the state, the listener has 6,000 samples"
    assert len(new.wave) == 4_000


def test_what_stages_leave_goes_once() -> None:
    recovery = RunRecovery()
    req = StageRequest(request(), 0, OneFrame(), info=StageInfo(name="t", checkpoints=kinds(Text)))
    assert recovery.made(req, Text("a", 0)) == Text("a", 0)
    assert [len(recovery.take_checkpoints()), len(recovery.take_checkpoints())] == [1, 0]
