"""Urgency: the six classes, batches of one stage, and a listener's slack."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import Duplex, DuplexCounts, StageInfo
from engine.deployment.config import ChunkSpec
from engine.worker.frame_clock import FrameClock
from engine.worker.listener import Listener
from engine.worker.loop.scheduler import Scheduler, Urgency
from engine.worker.pace import ListenerPace, OneFrame
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import request

NOW_S = 100.0


def at(listener: Listener, stage: str = "a", order: int = 0) -> StageRequest:
    return StageRequest(request(), 0, OneFrame(), info=StageInfo(name=stage, order=order), listener=listener)


def scheduler(**max_batch: int) -> Scheduler:
    made = Scheduler(max_batch or {"a": 4, "b": 4})
    made.timed("a", 0.05)
    made.timed("b", 0.05)
    return made


DRY = Listener(9.0, produced_s=1.0, started_s=NOW_S - 0.9)
SILENT = Listener(8.0)
LISTENING = Listener(7.0, produced_s=9.0, started_s=NOW_S - 1)
SPECULATIVE = Listener(6.0, speculative=True)
SPEAKING = Listener(5.0, committed=False)
CLASSES = [DRY, SILENT, LISTENING, SPECULATIVE, SPEAKING]


@given(st.permutations(CLASSES))
def test_the_classes_come_in_their_order(listeners: list[Listener]) -> None:
    entries = [at(listener) for listener in listeners]
    picked = scheduler(a=5).pick(entries, NOW_S)
    assert [one.listener for one in picked] == CLASSES
    assert [scheduler().urgency(one, NOW_S)[0] for one in picked] == list(Urgency)[1:]


@given(st.permutations(CLASSES))
def test_a_frame_of_a_duplex_session_comes_before_everything(listeners: list[Listener]) -> None:
    frame = at(Listener(1.0), "b")
    frame.clock = FrameClock(Duplex(), DuplexCounts(), NOW_S - 1)
    frame.clock.wait_s(NOW_S - 0.5)
    for plan in (scheduler(), Scheduler({"a": 4, "b": 4}, schedule="arrival")):
        assert plan.pick([*(at(listener) for listener in listeners), frame], NOW_S) == [frame]
        assert plan.urgency(frame, NOW_S)[0] == Urgency.FRAME


def test_the_prompts_of_duplex_sessions_step_one_by_one() -> None:
    prompts = [at(Listener(arrived_s), "b") for arrived_s in (1.0, 2.0)]
    for prompt in prompts:
        prompt.clock = FrameClock(Duplex(), DuplexCounts(), NOW_S)
        prompt.needs_input = False
    assert scheduler().pick(prompts, NOW_S) == prompts[:1]


def test_a_step_waits_for_a_frame_that_it_would_make_late_but_for_one_frame_at_most() -> None:
    frame, other = at(Listener(1.0), "b"), at(LISTENING)
    frame.clock = FrameClock(Duplex(), DuplexCounts(), NOW_S)
    frame.clock.wait_s(NOW_S)  # it is due at 0.08 s, and its step of 0.05 s must begin at 0.11 s
    plan = Scheduler({"a": 4, "b": 4})
    plan.timed("b", 0.05)
    plan.timed("a", 0.1)
    assert plan.pick([other], NOW_S, next_frame=frame) == [other]
    assert plan.pick([other], NOW_S + 0.02, next_frame=frame) == []
    assert plan.pick([other], NOW_S + 0.09, next_frame=frame) == []
    assert plan.pick([other], NOW_S + 0.11, next_frame=frame) == [other]
    assert plan.pick([other], NOW_S + 0.12, next_frame=frame) == [], "the next one waits again"
    assert plan.pick([other], NOW_S + 0.12) == [other]


def test_within_a_class_arrival_or_slack_decides() -> None:
    early, late = Listener(1.0), Listener(2.0)
    assert [e.listener for e in scheduler().pick([at(late), at(early)], NOW_S)] == [early, late]
    poor, rich = (Listener(0.0, produced_s=s, started_s=NOW_S) for s in (3.0, 5.0))
    assert [e.listener for e in scheduler().pick([at(rich), at(poor)], NOW_S)] == [poor, rich]


@given(st.permutations(CLASSES))
def test_by_arrival_whoever_came_first_steps_first_whatever_he_needs(listeners: list[Listener]) -> None:
    plan = Scheduler({"a": 5}, schedule="arrival")
    assert [one.listener for one in plan.pick([at(listener) for listener in listeners], NOW_S)] == sorted(
        listeners, key=lambda listener: listener.arrived_s
    )


def test_of_one_request_the_stage_nearest_to_the_sound_comes_first() -> None:
    listener = Listener(0.0)
    assert scheduler().pick([at(listener, "a", 0), at(listener, "b", 1)], NOW_S)[0].info.name == "b"


def test_first_sounds_that_came_together_go_together_stage_by_stage() -> None:
    first, second, later = Listener(NOW_S - 0.02), Listener(NOW_S - 0.01), Listener(NOW_S + 0.2)
    plan = scheduler()  # whose round takes 0.1 s

    def picked(*ready: StageRequest, now_s: float = NOW_S) -> tuple[str, list[Listener]]:
        batch = plan.pick(ready, now_s)
        return batch[0].info.name, [one.listener for one in batch]

    ahead = [at(first, "a", 0), at(first, "b", 1)]
    assert picked(*ahead, at(second, "a", 0)) == ("a", [first, second]), "the first waits for who came with it"
    assert picked(*ahead, at(second, "b", 1)) == ("b", [first, second]), "and goes on with it"
    assert picked(*ahead, at(later, "a", 0)) == ("b", [first]), "who came later is not waited for"
    assert picked(*ahead, at(second, "a", 0), now_s=NOW_S + 1) == ("b", [first]), "nor is anybody for long"


def test_a_first_step_waits_a_moment_for_who_came_with_it_and_is_still_read() -> None:
    """But no longer than it takes itself, and nobody waits who has begun, or while nobody comes."""
    plan, fresh, begun, coming = scheduler(), *(at(Listener(NOW_S - 0.02)) for _ in range(3))
    begun.stepped, fresh.needs_input = True, False
    assert plan.pick([fresh], NOW_S, [fresh, coming]) == [fresh], "of whom more comes is not waited for"
    coming.inputs.close()
    assert plan.pick([fresh], NOW_S, [fresh]) == [fresh]
    assert plan.pick([fresh], NOW_S, [fresh, coming]) == []
    assert plan.held_s == pytest.approx([0.01]), "30 ms from its arrival"
    assert plan.pick([fresh], NOW_S + 0.011, [fresh, coming]) == [fresh]
    assert plan.pick([fresh, begun], NOW_S, [coming]) == [begun]
    assert plan.pick([fresh, at(LISTENING)], NOW_S, [coming])[0].listener is LISTENING
    quick = Scheduler({"a": 4})
    assert quick.pick([fresh], NOW_S, [coming]) == [fresh], "how long a step takes is not known yet"
    quick.timed("a", 0.021)
    assert quick.pick([fresh], NOW_S, [coming]) == []
    assert quick.pick([fresh], NOW_S + 0.002, [coming]) == [fresh]
    by_arrival = Scheduler({"a": 4}, schedule="arrival", step_s={"a": 1.0})
    assert by_arrival.pick([fresh], NOW_S, [coming]) == [fresh]
    coming.needs_input = False  # it is ready, too
    assert plan.pick([fresh, coming], NOW_S, [fresh, coming]) == [fresh, coming]


listeners = st.builds(
    Listener, st.floats(0, 99), st.booleans(), st.booleans(), st.floats(0, 9), st.none() | st.floats(90, 100)
)


@given(st.lists(st.tuples(listeners, st.sampled_from("ab")), max_size=20), st.integers(1, 6))
def test_a_batch_is_one_stage_the_most_urgents_and_full(ready: list[tuple[Listener, str]], most: int) -> None:
    plan = scheduler(a=most, b=most)
    entries = [at(listener, stage, "ab".index(stage)) for listener, stage in ready]
    batch = plan.pick(entries, NOW_S)
    assert bool(batch) == bool(entries)
    if batch:
        first = min(entries, key=lambda one: plan.urgency(one, NOW_S))
        stage = batch[0].info.name if plan.urgency(first, NOW_S)[0] == Urgency.SILENT else first.info.name
        of_it = [one for one in entries if one.info.name == stage]
        assert {one.info.name for one in batch} == {stage}
        assert len(batch) == min(most, len(of_it))
        left = [plan.urgency(one, NOW_S) for one in of_it if one not in batch]
        assert all(plan.urgency(one, NOW_S) <= other for one in batch for other in left)


def test_a_listener_plays_from_the_first_sample_until_told_otherwise() -> None:
    listener = Listener(0.0)
    listener.produce(1.0, 10.0)
    assert listener.slack_s(10.5) == pytest.approx(0.5)
    listener.produce(1.0, 10.5)
    assert listener.slack_s(10.5) == pytest.approx(1.5)
    listener.started_s = 11.0  # a playout report
    assert listener.slack_s(11.0) == pytest.approx(2.0)


def test_a_listener_who_ran_dry_goes_on_from_there() -> None:
    listener = Listener(0.0)
    listener.produce(1.0, 10.0)
    assert listener.slack_s(13.0) == pytest.approx(-2.0)
    listener.produce(0.5, 13.0)
    assert listener.slack_s(13.0) == pytest.approx(0.5)


def test_the_estimate_of_a_step_rises_quickly_and_falls_slowly() -> None:
    plan = Scheduler({"a": 1})
    plan.timed("a", 1.0)
    plan.timed("a", 2.0)
    assert plan.round_s == pytest.approx(1.3)
    plan.timed("a", 0.3)
    assert plan.round_s == pytest.approx(1.27)


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_chunk_is_cut_short_when_the_listener_would_run_dry() -> None:
    clock, listener = Clock(), Listener(0.0)
    plan = Scheduler({"a": 1})
    plan.timed("a", 0.01)
    pace = ListenerPace(ChunkSpec(first=1, growth=2, steady=4), listener, 0.04, lambda: plan.round_s, clock)
    assert [pace.size(n) for n in range(4)] == [1, 2, 4, 4]
    assert not pace.hurry()  # nothing has started: nothing runs dry
    listener.produce(1.0, 0.0)
    assert not pace.hurry()
    clock.now_s = 0.96
    assert not pace.hurry()
    clock.now_s = 0.975  # what is left is less than two rounds of steps and a quarter of a frame
    assert pace.hurry()


@pytest.mark.parametrize(
    ("pending", "ended", "needs_input", "done", "ready"),
    [(0, False, True, False, False), (1, False, True, False, True), (0, True, True, False, True),
     (0, False, False, False, True), (1, True, False, True, False)],
)  # fmt: skip
def test_a_request_is_ready_when_it_has_something_to_do(
    pending: int, ended: bool, needs_input: bool, done: bool, ready: bool
) -> None:

    req = StageRequest(request(), 0, OneFrame(), ended=ended, needs_input=needs_input, done=done)
    req.pending.extend(range(pending))
    assert req.ready is ready
