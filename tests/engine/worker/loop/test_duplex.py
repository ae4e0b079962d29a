"""Duplex stages in the step loop, on a clock that only the test moves: batches, mixed loads, slow readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from engine.chunk import Audio, Chunk, Speech, Text, kinds
from engine.core import Duplex, DuplexCounts, Facets, Message, StageInfo, TextPart
from engine.errors import RequestError
from engine.ipc import messages
from engine.worker.asr.transcribing import pcm_of
from engine.worker.loop.scheduler import Scheduler
from engine.worker.models.script_duplex import ScriptDuplex
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.conversations import Clock, Conversations, conversing, speech
from tests.engine.fakes import FakeStage, Result, echo, fed, only, opened

DUPLEX = Duplex()


class Ear(FakeStage):
    """A duplex stage that answers each frame with its first sample; a step takes ``step_s`` of the simulated time."""

    def __init__(self, clock: Clock, step_s: float = 0.01, act: Callable[[StageRequest], Result] | None = None) -> None:
        super().__init__("duplex", 0, act or self._answer)
        self.info = StageInfo(
            name="duplex", takes=kinds(Speech), emits=kinds(Audio, Text), slots=8, facets=Facets(duplex=DUPLEX)
        )
        self._clock = clock
        self._step_s = step_s

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return pcm_of(inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        assert all(len(req.pending) == 1 for req in reqs)
        self._clock.pass_s(self._step_s)
        return super().step(reqs)

    @staticmethod
    def _answer(req: StageRequest) -> Result:
        return [Audio(np.full(1920, req.pending.popleft()[0], np.float32))]


class Slow(FakeStage):
    """A stage of a pipeline that always has work; its steps take ``step_s`` of the simulated time."""

    def __init__(self, clock: Clock, step_s: float) -> None:
        super().__init__("slow", 1, self._work, slots=2)
        self._clock = clock
        self._step_s = step_s

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Result]:
        self._clock.pass_s(self._step_s)
        return super().step(reqs)

    @staticmethod
    def _work(req: StageRequest) -> Result:
        req.pending.clear()
        req.needs_input = False
        return []


async def test_each_frame_gives_one_frame_in_the_same_step() -> None:
    clock = Clock()
    stage = Ear(clock)
    async with conversing(stage, clock=clock) as talk:
        talk.join("r", speech((2, 0.5)))
        await talk.last(1.9)
        assert talk.numbers("r") == list(range(len(talk.numbers("r"))))
        assert 22 <= len(talk.numbers("r")) <= 24
        heard = [round(float(chunk.wave[0]), 2) for chunk in talk.chunks("r")]
        assert set(heard[1:]) == {0.5}
        assert talk.counts == DuplexCounts(frames=len(heard), concealed=talk.counts.concealed)
        assert talk.counts.concealed <= 1


async def test_all_sessions_that_are_due_step_together() -> None:
    clock = Clock()
    stage = Ear(clock)
    async with conversing(stage, clock=clock) as talk:
        for run in "abcd":
            talk.join(run, speech((3, 0.1)))
        await talk.last(2)
        assert Counter(map(len, stage.batches)).most_common(1)[0][0] == 4
        assert len(stage.batches) <= 28


async def test_the_loop_wakes_for_frames_and_not_for_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    picks: list[float] = []
    pick = Scheduler.pick
    monkeypatch.setattr(Scheduler, "pick", lambda *args: [picks.append(clock()), pick(*args)][1])
    async with conversing(Ear(clock), clock=clock) as talk:
        talk.join("r", speech((5, 0.1)))
        await talk.last(1)
        before = len(picks)
        await talk.last(4)
        assert len(picks) - before <= 4 / 0.08 * 3


def answer(talk: Conversations, run: str) -> list[tuple[Any, ...]]:
    return [
        (chunk.frame, chunk.text) if isinstance(chunk, Text) else (chunk.frame, chunk.wave.tobytes())
        for chunk in talk.chunks(run)
    ]


SAID = speech((0.3, 0.2), (0.2, 0), (0.3, 0.2), (2.6, 0), (0.4, 0.3), (2.2, 0))


async def alone() -> list[tuple[Any, ...]]:
    clock = Clock()
    async with conversing(script(), clock=clock) as talk:
        talk.join("r", SAID)
        await talk.last(6)
        return answer(talk, "r")


def script(**options: float) -> ScriptDuplex:
    stage = ScriptDuplex(StageConfig(slots=8, options=options))
    stage.info = StageInfo(
        name="duplex", takes=stage.info.takes, emits=stage.info.emits, slots=8, facets=stage.info.facets
    )
    return stage


async def test_it_answers_what_it_hears() -> None:
    texts = [one for _, one in await alone() if isinstance(one, str)]
    assert "".join(texts) == "I heard 2 words.I heard 1 word."


async def test_a_session_is_the_same_alone_and_among_others_that_join_leave_and_fail() -> None:
    clock = Clock()
    async with conversing(script(), clock=clock) as talk:
        talk.join("early", speech((1, 0.4), (9, 0)))
        talk.join("r", SAID)
        await talk.last(1)
        talk.join("late", speech((0.5, 0.9), (9, 0)))
        talk.join("typed", prompt=(Message("system", (TextPart("say: hello you"),)),))
        await talk.last(1.5)
        talk.leave("early")
        await talk.last(0.5)
        talk.join("again", speech((3, 0.1)))
        await talk.last(3)
        assert answer(talk, "r") == await alone()


async def test_it_listens_while_it_speaks_and_stops() -> None:
    clock = Clock()
    async with conversing(script(frames_per_word=10), clock=clock) as talk:
        talk.join("r", speech((0.3, 0.2), (0.9, 0), (0.5, 0.2), (3, 0)))
        await talk.last(2)
        spoken = [bool(chunk.wave.any()) for chunk in only(Audio, talk.chunks("r"))]
        assert any(spoken[9:14])
        assert not any(spoken[-4:])


async def test_a_prompt_is_computed_before_the_first_frame() -> None:
    clock = Clock()
    stage = script()
    async with conversing(stage, clock=clock) as talk:
        talk.join("r", prompt=(Message("system", (TextPart("say: one two"),)),))
        await talk.last(1)
        chunks = talk.chunks("r")
        assert "".join(chunk.text for chunk in only(Text, chunks)) == "one two"
        assert talk.numbers("r") == list(range(len(talk.numbers("r"))))
        assert only(Audio, chunks)[0].wave.any()


async def test_a_reader_that_does_not_read_stops_nothing() -> None:
    clock = Clock()
    stage = Ear(clock)
    async with conversing(stage, clock=clock) as talk:
        talk.join("deaf", speech((8, 0.1)), credit=5)
        talk.join("r", speech((8, 0.1)))
        await talk.last(3)
        assert talk.numbers("deaf") == [0, 1, 2, 3, 4]
        assert talk.counts.unread == talk.counts.frames // 2 - 5
        assert talk.counts.late == talk.counts.skipped == 0
        talk.desk.put(messages.Grant("deaf", 2))
        unread = talk.counts.unread
        await talk.last(1)
        numbers = talk.numbers("deaf")
        assert numbers[5:] == [5 + unread, 6 + unread]
        assert len(talk.numbers("r")) > 48


async def test_a_recording_that_is_sent_at_once_is_read_at_the_pace_of_speech() -> None:
    clock = Clock()
    async with conversing(Ear(clock), clock=clock) as talk:
        talk.join("r")
        talk.desk.put(*(messages.Feed("r", Speech(piece)) for piece in np.split(speech((6, 0.1)), 300)))

        def read() -> int:
            return sum(grant.n for grant in talk.desk.of(messages.Grant, "r"))

        await talk.last(0.2)
        assert 64 <= read() <= 128  # 2 s and a few
        await talk.last(5)
        assert read() > 280
        assert talk.counts.dropped == talk.counts.concealed == 0


@pytest.mark.parametrize("slow_s", [0.02, 0.06, 0.1])
async def test_steps_of_a_pipeline_make_no_frame_late(slow_s: float) -> None:
    clock = Clock()
    slow = Slow(clock, slow_s)
    async with conversing(Ear(clock), slow, clock=clock) as talk:
        talk.join("r", speech((9, 0.1)))
        talk.desk.put(opened("p", "slow"), *fed("p", 1))
        await talk.last(8)
        assert talk.counts.late == talk.counts.skipped == 0
        assert len(slow.batches) * slow_s > 4, "the pipeline gets the rest of the time"


async def test_steps_that_are_longer_than_a_frame_do_not_wait_for_ever() -> None:
    clock = Clock()
    slow = Slow(clock, 0.3)
    async with conversing(Ear(clock), slow, clock=clock) as talk:
        talk.join("r", speech((9, 0.1)))
        talk.desk.put(opened("p", "slow"), *fed("p", 1))
        await talk.last(8)
        assert len(slow.batches) >= 12
        assert len(talk.numbers("r")) > 20


async def test_an_error_of_one_session_reaches_no_other() -> None:
    clock = Clock()

    def act(req: StageRequest) -> Result:
        if req.request.id == "bad" and req.clock is not None and req.clock.counts.frames > 20:
            return RequestError("no")
        return Ear._answer(req)

    async with conversing(Ear(clock, act=act), clock=clock) as talk:
        talk.join("bad", speech((4, 0.1)))
        talk.join("r", speech((4, 0.1)))
        await talk.last(3)
        assert [failed.code for failed in talk.desk.of(messages.Failed, "bad")] == ["invalid_request"]
        assert len(talk.numbers("r")) > 33
        assert not talk.desk.of(messages.Failed, "r")


async def test_after_the_end_of_the_sound_the_rest_is_heard() -> None:
    clock = Clock()
    async with conversing(Ear(clock), clock=clock) as talk:
        talk.join("r")
        talk.desk.put(messages.Feed("r", Speech(speech((0.5, 0.25)))), messages.End("r"))
        await talk.last(1)
        assert len(talk.numbers("r")) == 7
        assert len(talk.desk.of(messages.End, "r")) == 1
        assert not talk.desk.worker.runs
        assert talk.desk.worker.free == {"duplex": 8}


async def test_the_heartbeat_tells_the_counts_and_that_a_session_lives() -> None:
    clock = Clock()
    async with conversing(Ear(clock), clock=clock) as talk:
        talk.join("r", speech((0.5, 0.1)))
        await talk.last(2)
        beat = talk.desk.worker.beat("w")
        assert beat.moving == ("r",)
        assert beat.queues == {"duplex": 0}
        assert beat.duplex["duplex"].concealed > 15
        assert beat.duplex["duplex"].frames > 22


async def test_a_pipeline_without_duplex_sessions_waits_for_nothing() -> None:
    clock = Clock()
    stage = FakeStage("a", 0, echo)
    async with conversing(Ear(clock), stage, clock=clock) as talk:
        talk.desk.put(opened("p", "a"), *fed("p", 1, 2), messages.End("p"))
        await talk.last(0.1)
        assert talk.desk.data("p") == [1, 2]
