"""A deployment beside a peer: what is judged, and that a worse engine fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.bench.target import BenchError
from benchmarks import against
from benchmarks.peers.bare import Bare
from benchmarks.peers.peer import Question, Subject, Times
from engine import ChunkSpec, EngineSpec, parse_config

SCRIPT = parse_config("model: script\nworkers: [{stages: [ears, thinker, talker, code2wav]}]\n")


def times(first_s: float, whole_s: float = 1.0, frames: int = 50) -> Times:
    return Times(first_s=(first_s,), whole_s=whole_s, frames=frames)


def passed(figures: Sequence[Any]) -> list[bool]:
    return [figure.passed for figure in figures]


def test_first_audio_must_come_twentyfive_times_earlier_and_the_whole_no_later() -> None:
    assert passed(against._beside("it", [(times(0.05), times(1.9, 1.9))] * 4)) == [True, True]
    assert passed(against._beside("it", [(times(0.1), times(1.9, 1.9))] * 4)) == [False, True]
    assert passed(against._beside("it", [(times(0.05, 2.0), times(1.9, 1.9))] * 4)) == [True, False]


def test_answers_of_different_lengths_are_not_compared() -> None:
    assert passed(against._beside("it", [(times(0.05, frames=40), times(1.9, 1.9))])) == [False, False]


def test_what_comes_on_top_of_short_forwards_is_judged_in_milliseconds_else_as_a_ratio() -> None:
    still = [(times(0.010), times(0.010))] * 30
    assert passed(against._overhead([(times(0.012), times(0.010))] * 30, still)) == [True, True]
    assert passed(against._overhead([(times(0.014), times(0.010))] * 30, still)) == [False, False]
    assert passed(against._overhead([(times(0.112), times(0.100))] * 30, still)) == [True, True]
    assert passed(against._overhead([(times(0.120), times(0.100))] * 30, still)) == [False, True]


def test_the_machines_own_unrest_stands_beside_what_comes_on_top() -> None:
    restless = [(times(0.010 + 0.001 * (i % 5)), times(0.010)) for i in range(30)]
    p50, p95 = against._overhead([(times(0.014), times(0.010))] * 30, restless)
    assert "of themselves 2.00 ms" in p50.note
    assert "of themselves 4.00 ms" in p95.note


SLOW = {"step_s": 0.03}  # far above this machine's noise
BARE = Subject(model="script", weights=None, options=SLOW)


async def over_the_forwards(spec: EngineSpec) -> float:
    question = Question(text="Hello.", tokens=5, frames=5)
    bare = await asyncio.to_thread(Bare.of(BARE).answer, question)
    async with against.Engine(spec) as engine:
        ours = [await against._asker(engine)(question) for _ in range(4)]
    figures = against._overhead([(one, bare) for one in ours[1:]], [(bare, bare)])
    assert figures[0].value is not None
    return figures[0].value


@pytest.mark.bench
async def test_four_frames_in_the_first_chunk_or_a_step_that_sleeps_come_too_late() -> None:
    """The negative controls of the bar: the engine as it is comes near to its forwards, those don't."""
    assert await over_the_forwards(replace(SCRIPT, options=SLOW)) < 1.4
    late = replace(SCRIPT, options=SLOW, chunks=ChunkSpec(first=4, steady=25))
    assert await over_the_forwards(late) > 1.6
    assert await over_the_forwards(replace(SCRIPT, options={"step_s": 0.06})) > 1.6


async def test_a_peer_that_ends_is_told() -> None:
    """Of its weights there are none; the error is the same whichever peer it is."""
    nowhere = replace(SCRIPT, model="nano", weights="/nowhere")
    with pytest.raises(BenchError, match="bare ended"):
        await asyncio.wait_for(against.compare(nowhere, "bare", 1), 60)
