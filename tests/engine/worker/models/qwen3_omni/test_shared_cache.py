"""Requests that share a cache say what each says in a full context, also where some have to wait for room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from engine import ConfigError, ContextOverflow, Engine, Sampling
from engine.chunk import Chunk, Speech
from engine.stream import Stream
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.nn.memory import plan
from engine.worker.omni import talker
from engine.worker.omni.kv_cache_admission import KvCacheAdmission
from engine.worker.omni.thinker_state import ThinkerState
from engine.worker.stage import Stage, StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import until
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, SYSTEM, TONE, Folder
from tests.engine.worker.models.qwen3_omni.driven import Frames, stages
from tests.oracles.talk import Said, ask, request, spec

SHARED = 256  # one context; of the requests below two or three find room in it at a time
TITLES = ["text", "audio", "bare", "history", "audio", "text"]


class Taken:
    """Which requests had room, and which found none, each time: stage and id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.had, self.waited, self.gave_up = list[str](), list[str](), list[str]()
        take, give_up, forget = KvCacheAdmission.take, ThinkerState.give_up, talker._give_up

        def taking(room: KvCacheAdmission, req: StageRequest, need: int, whole: bool) -> bool:
            found = take(room, req, need, whole)
            (self.had if found else self.waited).append(f"{req.info.name}:{req.request.id}")
            return found

        def giving_up(thought: ThinkerState) -> None:
            self.gave_up.append("thinker")
            give_up(thought)

        def forgetting(req: StageRequest) -> None:
            self.gave_up.append("talker")
            forget(req)

        monkeypatch.setattr(KvCacheAdmission, "take", taking)
        monkeypatch.setattr(ThinkerState, "give_up", giving_up)
        monkeypatch.setattr(talker, "_give_up", forgetting)
        monkeypatch.setattr(Qwen3OmniSource, "shared", lambda self, length: self.cache_tokens and 160)  # a talker's


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


def asked(prefix: str) -> list[Any]:
    return [
        request(f"{prefix}{i}", PROMPTS[title], 40, 60, sampling=Sampling(greedy=i % 2 == 0, temperature=1.0, seed=i))
        for i, title in enumerate(TITLES)
    ]


def content(said: Said) -> Any:
    return said.prompt, said.ids, said.codes.tolist(), said.finish


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What is said alone, in a full context and without graphs, once it was asked."""
    return {}


@pytest.mark.parametrize("graphs", [False, True])
async def test_six_say_in_the_room_of_one_context_what_each_says_alone(
    graphs: bool, checkpoint: Folder, taken: Taken, known: dict[str, Any]
) -> None:
    folder = checkpoint("plain")
    if "six" not in known:
        async with Engine(spec(folder, slots=6, context=SHARED)) as engine:
            known["six"] = [content(await ask(engine, one)) for one in asked("a")]
    assert not taken.waited
    async with Engine(spec(folder, slots=6, context=SHARED, cache_tokens=SHARED, graphs=graphs)) as engine:
        together = await asyncio.gather(*(ask(engine, one) for one in asked("b")))
    assert list(map(content, together)) == known["six"]
    assert {one.split(":")[0] for one in taken.waited} == {"thinker", "talker"}, "else nobody had to wait"


async def test_a_long_context_beside_many_short_ones_changes_no_answer(checkpoint: Folder) -> None:
    """In the positions of two contexts, which 24 share; each says what it says alone."""
    folder, long = checkpoint("plain"), [SYSTEM, ("user", ["How far is it to the next town by the river? " * 40])]

    def many(prefix: str) -> list[Any]:
        turns = [long, *([SYSTEM, ("user", [f"And {i}?"])] for i in range(23))]
        return [request(f"{prefix}{i}", one, 8, 6, sampling=Sampling(seed=i)) for i, one in enumerate(turns)]

    async with Engine(spec(folder, slots=24, context=2048, cache_tokens=4096)) as engine:
        alone = [await ask(engine, one) for one in many("a")]
        together = await asyncio.gather(*(ask(engine, one) for one in many("b")))
    assert len(alone[0].prompt) > 700 > 40 > max(len(one.prompt) for one in alone[1:])
    assert list(map(content, together)) == list(map(content, alone))


async def test_an_answer_that_is_cancelled_makes_room(checkpoint: Folder, taken: Taken) -> None:
    async with Engine(spec(checkpoint("plain"), slots=4, context=SHARED, cache_tokens=SHARED)) as engine:
        first = asyncio.create_task(ask(engine, request("first", PROMPTS["text"], 200, 40)))
        await until(lambda: "thinker:first" in taken.had)
        second = asyncio.create_task(ask(engine, request("second", PROMPTS["text"], 200, 40)))
        await until(lambda: "thinker:second" in taken.waited)
        first.cancel()
        await asyncio.wait([first])
        assert (await second).ids
    assert first.cancelled()


@pytest.mark.parametrize("name", ["thinker", "talker"])
async def test_who_is_next_in_line_has_no_part_in_the_step_before_its_own(
    name: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two wait; the later one ranks before the other when room is free. It would write to rows that are others'."""
    monkeypatch.setattr(Qwen3OmniSource, "shared", lambda self, length: self.cache_tokens)
    thinker, speaker, _ = stages(checkpoint("plain"), "cpu", slots=3, context=SHARED, cache_tokens=SHARED)
    answered, chunks = await begun(thinker, 0, []), list[Chunk]()
    while not answered.done:
        chunks += thinker.step([answered])[0]  # pyright: ignore[reportOperatorIssue]
    fed = [chunk for chunk in chunks if chunk.kind in thinker.info.feeds]
    stage, inputs = (thinker, []) if name == "thinker" else (speaker, fed)
    reqs = first, earlier, later = [await begun(stage, slot, inputs) for slot in range(3)]
    for req in reqs:
        stage.step([req])
    assert (first.waits, earlier.waits, later.waits) == (False, True, True)
    first.done, earlier.waits, later.waits = True, False, False
    stage.step([later, earlier])
    assert (later.state.num_computed_tokens, earlier.state.num_computed_tokens > 0) == (0, True)


async def begun(stage: Stage, slot: int, inputs: list[Chunk]) -> StageRequest:
    """A request at a stage, which has all of its inputs."""
    req = StageRequest(request(f"{slot}", PROMPTS["text"], 150, 150), slot, Frames())
    stage.open(req)
    stream = Stream(4096)
    for chunk in inputs:
        stream.put(chunk)
    stream.close()
    async with aclosing(stage.adapt(req, stream)) as rows:
        req.pending.extend([row async for row in rows])
    req.ended = True
    return req


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("small", ["thinker", "talker"])
async def test_what_was_taken_in_ahead_gives_way_and_says_the_same(
    small: str, graphs: bool, checkpoint: Folder, taken: Taken, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users speak; a typed question takes the room of what a stage computed of their turns."""
    if small == "thinker":
        monkeypatch.setattr(Qwen3OmniSource, "shared", lambda self, length: None)
    typed = [SYSTEM, ("user", ["Tell me all."])]

    async def spoken(over: Callable[[], bool]) -> AsyncIterator[Chunk]:
        for at in range(0, len(TONE), 512):
            yield Speech(TONE[at : at + 512])
        await until(over)

    if "spoken" not in known:
        async with Engine(spec(checkpoint("plain"), slots=4, context=SHARED)) as engine:
            known["spoken"] = content(await ask(engine, request("_", [SYSTEM], live=True), spoken(lambda: True)))
            known["typed"] = content(await ask(engine, request("other", typed, 200, 130)))
    options: dict[str, Any] = {
        "context": SHARED,
        "cache_tokens": SHARED * (1 if small == "thinker" else 4),
        "graphs": graphs,
    }
    async with Engine(spec(checkpoint("plain"), slots=4, **options)) as engine:
        users = [
            asyncio.create_task(
                ask(engine, request(id, [SYSTEM], live=True), spoken(lambda: f"{small}:typed" in taken.had))
            )
            for id in ("live 1", "live 2")
        ]
        await until(lambda: {"thinker:live 1", "thinker:live 2"} <= {*taken.had})
        await until(lambda: any(one.startswith(f"{small}:live") for one in taken.had))
        answer = await ask(engine, request("typed", typed, 200, 130))
        said = [await user for user in users]
    assert {*taken.gave_up} == {small}
    assert content(answer) == known["typed"]
    assert [content(one) for one in said] == [known["spoken"]] * 2


@pytest.mark.parametrize("family", [Thinker, Talker])
def test_the_plan_of_memory_counts_what_is_shared(family: Any, checkpoint: Folder) -> None:
    def caches(slots: int, **options: Any) -> int:
        return plan(family, StageConfig(checkpoint("plain"), slots=slots, options={"context": 512, **options})).caches

    full, many = caches(4), caches(64)
    assert caches(64, cache_tokens=4 * 512) < full + (many - full) // 20, "and where slots begin, and the predictor"


def test_less_than_one_context_is_refused_before_anything_is_loaded(checkpoint: Folder) -> None:
    place = StageConfig(checkpoint("plain"), options={"context": 512, "cache_tokens": 511})
    with pytest.raises(ConfigError, match="cache_tokens: 511 positions are fewer than one context of 512"):
        Thinker.describe(place)


async def test_a_prompt_longer_than_the_cache_is_refused_and_others_go_on(checkpoint: Folder, taken: Taken) -> None:
    long = request("long", [SYSTEM, ("user", ["word " * 400])])
    async with Engine(spec(checkpoint("plain"), slots=4, context=SHARED, cache_tokens=SHARED)) as engine:
        refused, said = await asyncio.gather(
            ask(engine, long), ask(engine, request("short", PROMPTS["text"])), return_exceptions=True
        )
    assert isinstance(refused, ContextOverflow)
    assert isinstance(said, Said)
    assert said.ids
    assert not any("long" in one for one in (*taken.had, *taken.waited))
