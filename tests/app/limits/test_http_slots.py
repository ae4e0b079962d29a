"""Answers over HTTP hold half of each stage's slots at most, in order; a session finds a slot whatever they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from app.limits.http_slots import HttpSlotLimiter
from engine import EngineSpec
from tests.app.rig import LoudnessVad, Running, eventually, running, script_spec, talking
from tests.engine.fakes import turns

HALF = 8
LONG = "a " * 2048
"""8 MB of samples: more than the sockets between a server and its client hold."""


async def held(line: HttpSlotLimiter, taken: list[str], name: str, leave: asyncio.Event, **slots: int) -> None:
    async with line.hold(lambda: slots):
        taken.append(name)
        await leave.wait()


@pytest.mark.parametrize(("share", "first"), [(0.5, "ab"), (0.1, "a"), (1.0, "abcd")])
async def test_a_share_of_the_scarcest_stage_is_held_and_the_others_follow_in_order(share: float, first: str) -> None:
    line, taken, leave = HttpSlotLimiter(60.0, share), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(held(line, taken, name, leave, thinker=16, ears=4))
        await turns()
        assert taken == list(first)
        leave.set()
        await turns()
        assert taken == ["a", "b", "c", "d"]


async def test_one_that_needs_less_does_not_overtake_and_follows_at_once() -> None:
    line, taken = HttpSlotLimiter(60.0, 0.5), list[str]()
    leave, never = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(held(line, taken, "heard", leave, thinker=16, ears=2))
        group.create_task(held(line, taken, "also heard", never, thinker=16, ears=2))
        group.create_task(held(line, taken, "typed", never, thinker=16))
        await turns()
        assert taken == ["heard"]
        leave.set()
        await turns()
        assert taken == ["heard", "also heard", "typed"]
        never.set()


async def test_a_request_to_another_model_does_not_wait_for_those_before_it() -> None:
    line, taken, leave = HttpSlotLimiter(60.0, 0.5), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name, stage in (("first", "a:thinker"), ("second", "a:thinker"), ("other", "b:thinker")):
            group.create_task(held(line, taken, name, leave, **{stage: 1}))
        await turns()
        assert taken == ["first", "other"]
        leave.set()
    assert taken == ["first", "other", "second"]


async def test_one_waits_no_longer_than_it_may_and_who_leaves_the_line_holds_up_nobody() -> None:
    line, taken, leave = HttpSlotLimiter(0.0, 0.5), list[str](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(held(line, taken, "first", leave, thinker=1))  # of one slot it may have that
        await turns()
        with pytest.raises(TimeoutError):
            await held(line, taken, "late", leave, thinker=1)
        leave.set()
        await turns()
        await held(line, taken, "next", leave, thinker=1)
    assert taken == ["first", "next"]


async def test_one_who_is_patient_waits_for_as_long_as_it_takes() -> None:
    line, taken, leave = HttpSlotLimiter(0.0, 0.5), list[str](), asyncio.Event()

    async def patient() -> None:
        async with line.hold(lambda: {"thinker": 1}, patient=True):
            taken.append("patient")

    async with asyncio.TaskGroup() as group:
        group.create_task(held(line, taken, "first", leave, thinker=1))
        group.create_task(patient())
        await turns()
        assert taken == ["first"]
        leave.set()
    assert taken == ["first", "patient"]


async def test_where_a_stage_has_no_replica_the_engine_is_asked_which_says_so() -> None:
    line, taken, leave = HttpSlotLimiter(60.0, 0.5), list[str](), asyncio.Event()
    leave.set()
    await held(line, taken, "asked", leave, thinker=0)
    assert taken == ["asked"]


def sixteen(**limits: float) -> EngineSpec:
    """A server whose stages have as many slots."""
    spec = script_spec(limits=limits)
    return replace(spec, workers=tuple(replace(worker, max_batch=2 * HALF) for worker in spec.workers))


def talkers(server: Running) -> Mapping[str, int]:
    """Who speaks."""
    assert server.service.engine_host.engine is not None
    return server.service.engine_host.engine.stats()["talker"]


def waiting(server: Running) -> list[int]:
    """How many wait for a slot, at each stage."""
    assert server.service.engine_host.engine is not None
    return [stage["waiting"] for stage in server.service.engine_host.engine.stats().values()]


@asynccontextmanager
async def flooded(server: Running, requests: int) -> AsyncGenerator[None]:
    """So many long speeches that nobody reads, while the block lasts."""
    body = {"model": "script", "input": LONG, "response_format": "pcm"}
    async with AsyncExitStack() as open_:
        http = await open_.enter_async_context(httpx.AsyncClient(base_url=server.http, timeout=60))
        asking = [
            asyncio.create_task(http.send(http.build_request("POST", "/v1/audio/speech", json=body), stream=True))
            for _ in range(requests)
        ]
        try:
            await eventually(lambda: server.service.admission.answers == requests)
            await eventually(lambda: talkers(server)["leased"] >= HALF)
            yield
        finally:
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            for task in asking:
                if not task.cancelled():
                    await task.result().aclose()


async def test_a_user_who_talks_is_answered_beside_sixteen_speeches_over_http() -> None:
    async with running(sixteen(), vad=LoudnessVad) as server:
        async with flooded(server, 16), talking(server) as client:
            assert talkers(server)["leased"] == HALF
            done = await client.ask("say: you are heard")
            assert done["status"] == "completed"
            async with httpx.AsyncClient(base_url=server.http) as http:
                refused = await http.post("/v1/audio/speech", json={"model": "script", "input": "x", "voice": "tone"})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        await eventually(lambda: not any(server._leased()))


async def test_without_places_kept_for_sessions_that_user_would_find_none() -> None:
    """The negative control, and what a server without sessions asks for."""
    async with (
        running(sixteen(answers_share=1.0), vad=LoudnessVad) as server,
        flooded(server, 16),
        talking(server) as client,
    ):
        await eventually(lambda: talkers(server)["leased"] == 2 * HALF)
        await (await client.say("say: you are not heard")).send("response.create")
        await eventually(lambda: sum(waiting(server)) == 1)


async def test_the_metrics_tell_how_many_wait(server: Running) -> None:
    places = server.service.admission.http_slots
    async with places.hold(lambda: {"thinker": 1}):
        waiting = asyncio.create_task(places.hold(lambda: {"thinker": 1}).__aenter__())
        await eventually(lambda: server.metric("parley_http_waiting") == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert server.metric("parley_http_waiting") == 0
