"""A chain of models: who answers, what each of them reads, and what is left when a request is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from engine import Engine, EngineSpec, StageSpec, WorkerSpec
from engine.chunk import Checkpoint, Chunk, Text, Transcript, Usage, VoiceText, kinds
from engine.core import IN_WRITING, Facets, ImagePart, Message, Request, StageInfo, TextPart, TokenCost
from engine.deployment.config import ModelSpec
from engine.deployment.describe import describe
from engine.errors import (
    ConfigError,
    ContextOverflow,
    Declined,
    EngineError,
    RequestError,
    StageFailed,
    StageUnavailable,
    Stalled,
    error_of,
)
from engine.ipc import messages
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.stages.llm import chain
from engine.worker.stages.llm.chain import Chain
from engine.worker.streamed import Broken, Streamed
from tests.engine.fakes import Desk, Result, only, opened, request, turns, until, whole, working
from tests.engine.worker.llm.scripted import answer, scripted, stalled, stream, words

TAKES: dict[str, Any] = {"takes": kinds(Transcript), "emits": kinds(Text, Usage), "answers": True}


class Steps:
    """A model that steps: one piece of its answer each time."""

    info = StageInfo(**TAKES, feeds=kinds(Text))

    def __init__(self, *pieces: str | EngineError | Exception, refuses: EngineError | None = None) -> None:
        self.pieces = pieces
        self.refuses = refuses
        self.heard: list[str] = []
        self.requests: list[Request] = []
        self.closed = 0

    def open(self, req: StageRequest) -> None:
        req.state = list(self.pieces)
        self.requests.append(req.request)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        try:
            self.heard += [chunk.text async for chunk in inputs if isinstance(chunk, Transcript)]
            if self.refuses is not None:
                raise self.refuses
            yield "row"
        finally:
            self.closed += 1

    def step(self, reqs: Sequence[StageRequest]) -> list[Result]:
        return [self._step(req) for req in reqs]

    def _step(self, req: StageRequest) -> Result:
        if req.pending:
            req.pending.clear()
            req.needs_input = False
        if not req.state:
            req.done = True
            return [Usage()]
        piece = req.state.pop(0)
        if isinstance(piece, EngineError):
            return piece
        if isinstance(piece, Exception):
            raise piece
        return [Text(piece, 0)] if piece else []


class Streams(Streamed):
    """A model whose chunks come from a generator."""

    info = StageInfo(**TAKES, feeds=kinds(VoiceText), facets=Facets(context=500, cost=TokenCost(character=0.3)))
    patient = True

    def __init__(self, *pieces: str | Exception, waits: bool = False) -> None:
        self.info = type(self).info
        self.pieces = pieces
        self.waits = waits
        self.heard: list[str] = []
        self.requests: list[Request] = []
        self.begun = 0
        self.closed = 0
        self.down = ""

    @property
    def unavailable(self) -> str:
        return self.down

    async def answer(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
        self.begun += 1
        self.requests.append(request)
        try:
            self.heard += [chunk.text async for chunk in inputs if isinstance(chunk, Transcript)]
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    await turns()
                    raise piece
                yield Text(piece, 0)
                yield VoiceText(piece, 0)
            if self.waits:
                await asyncio.Event().wait()
            yield Usage()
        finally:
            self.closed += 1


Model = Steps | Streams


@asynccontextmanager
async def served(made: Chain) -> AsyncGenerator[Desk]:
    async with working(made) as desk:  # pyright: ignore[reportArgumentType] - any stage will do
        yield desk


@pytest.fixture
def chained(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Chain]:
    """Make a chain of fakes, whose stage is called "a"."""

    def make(*models: Model, options: Mapping[str, Any] | None = None, now: Callable[[], float] = lambda: 0.0) -> Chain:
        class Maker:
            def __init__(self, place: int) -> None:
                self.place = place

            def describe(self, config: StageConfig) -> StageInfo:
                return models[self.place].info

            def __call__(self, config: StageConfig) -> Model:
                return models[self.place]

        monkeypatch.setattr(chain, "stage_type", lambda use: Maker(int(use)))
        config = StageConfig(models=tuple((str(n), StageConfig()) for n in range(len(models))), options=options or {})
        made = Chain(config, now)
        made.info = replace(made.info, name="a")
        return made

    return make


async def asked(desk: Desk, id: str = "r", heard: str = "", **fields: Any) -> list[Chunk]:
    """Ask, and return what the chain gave; raises the error that ended the answer."""
    desk.put(opened(id, **fields))
    if heard:
        desk.put(messages.Feed(id, Transcript(heard, final=True)))
    desk.put(messages.End(id))
    await desk.ended(id)
    if failures := desk.of(messages.Failed, id):
        raise error_of(failures[0].code, failures[0].message)
    return [emit.chunk for emit in desk.of(messages.Emit, id)]


def said(chunks: Sequence[Chunk]) -> str:
    return "".join(text.text for text in only(Text, chunks))


FIRST_FAILS = [
    Steps(Declined("not mine")),
    Steps("", "", Declined("not mine, after some steps")),
    Steps(StageFailed("broken")),
    Steps(ValueError("a bug")),
    Steps(refuses=Declined("not mine")),
    Steps(refuses=RequestError("no such tool")),
    Streams(ContextOverflow("too long")),
    Streams(ValueError("a bug")),
]


@pytest.mark.parametrize("second", [Steps("yes"), Streams("yes")], ids=["steps", "streams"])
@pytest.mark.parametrize("place", range(len(FIRST_FAILS)))
async def test_the_next_model_answers_where_one_declines_or_fails_before_its_first_chunk(
    chained: Callable[..., Chain], place: int, second: Model
) -> None:
    first = FIRST_FAILS[place]
    first.closed, first.heard, second.heard = 0, [], []
    async with served(chained(first, second)) as desk:
        got = await asked(desk, heard="hello")
        await until(lambda: not desk.worker.runs)
        assert said(got) == "yes"
        spoken = Text if first.info.feeds == second.info.feeds == kinds(Text) else VoiceText
        assert [text.text for text in only(spoken, got)] == ["yes"], "spoken once"
        assert len(only(Usage, got)) == 1
        assert first.heard == second.heard == ["hello"], "both read the same input"
        assert first.closed == 1


async def test_the_first_model_answers_what_it_can_and_the_second_is_not_asked(chained: Callable[..., Chain]) -> None:
    first, second = Steps("four"), Streams("other")
    async with served(chained(first, second)) as desk:
        got = await asked(desk, heard="two and two")
        assert said(got) == "four"
        assert [text.text for text in only(VoiceText, got)] == ["four"], "its words go to the voice once"
        assert second.begun == 0


@pytest.mark.parametrize("first", [Steps("half", StageFailed("broken")), Streams("half", StageFailed("broken"))])
async def test_after_its_first_chunk_a_models_error_ends_the_answer(
    chained: Callable[..., Chain], first: Model
) -> None:
    second = Streams("other")
    async with served(chained(first, second)) as desk:
        with pytest.raises(EngineError, match="broken"):
            await asked(desk)
        if isinstance(first, Steps):
            assert second.begun == 0


async def test_the_last_models_error_is_the_answers(chained: Callable[..., Chain]) -> None:
    models = Steps(Declined("not mine")), Streams(StageFailed("one is down")), Streams(StageFailed("two is down"))
    async with served(chained(*models)) as desk:
        with pytest.raises(EngineError, match="two is down"):
            await asked(desk)
        await until(lambda: not desk.worker.runs)
        assert desk.worker.free == {"a": 16}


@pytest.mark.parametrize("turns_before", range(0, 30, 3))
async def test_a_cancel_at_any_moment_leaves_nothing_behind(chained: Callable[..., Chain], turns_before: int) -> None:
    models = Steps("", Declined("not mine")), Streams("half", waits=True)
    async with served(chained(*models)) as desk:
        desk.put(opened("r"), messages.End("r"))
        await turns(turns_before)
        desk.put(messages.Close("r"))
        await until(lambda: not desk.worker.runs)
        assert models[1].begun == models[1].closed
        assert desk.worker.free == {"a": 16}


async def test_requests_at_different_models_step_together(chained: Callable[..., Chain]) -> None:
    first, second = Steps("mine"), Streams("other")
    made = chained(first, second)
    step = first._step
    first._step = lambda req: Declined("no") if req.request.id in "bd" else step(req)
    async with served(made) as desk:
        for id in "abcd":
            desk.put(opened(id), messages.End(id))
        await desk.ended(*"abcd")
        answers = {id: said([emit.chunk for emit in desk.of(messages.Emit, id)]) for id in "abcd"}
    assert answers == {"a": "mine", "b": "other", "c": "mine", "d": "other"}


async def test_a_model_that_cannot_be_had_is_passed_over(chained: Callable[..., Chain]) -> None:
    first, second = Streams("one"), Streams("two")
    first.down = "The server does not answer."
    made = chained(first, second)
    async with served(made) as desk:
        assert said(await asked(desk)) == "two"
        assert first.begun == 0
        assert not made.unavailable
        second.down = "Neither does the other."
        assert made.unavailable == second.down


FAILURES = [
    Steps(StageFailed("broken")),
    Steps(refuses=StageUnavailable("no replica")),
    Streams(Stalled("no token within 2 s")),
    Streams("half", StageFailed("broken")),
]


@pytest.mark.parametrize("place", range(len(FAILURES)))
async def test_a_failed_model_is_skipped_for_some_seconds_and_then_probed_by_one_request(
    chained: Callable[..., Chain], place: int
) -> None:
    first, second, now_s = FAILURES[place], Streams("two"), [100.0]
    made = chained(first, second, options={"skip_s": 30.0}, now=lambda: now_s[0])
    pieces, refuses = first.pieces, getattr(first, "refuses", None)
    async with served(made) as desk:
        for name in ("failing", "skipped"):
            with suppress(EngineError):  # an answer that has begun ends with its error
                await asked(desk, name)
        assert len(first.requests) == 1
        now_s[0] += 31
        for name in "cd":
            desk.put(opened(name), messages.End(name))
        await desk.ended(*"cd")
        assert len(first.requests) == 2, "one request probes it, the other does not wait for it"
        first.pieces = ("well again",)
        if isinstance(first, Steps):
            first.refuses = None
        now_s[0] += 31
        assert [said(await asked(desk, name)) for name in "ef"] == ["well again", "well again"]
    first.pieces = pieces
    if isinstance(first, Steps):
        first.refuses = refuses


async def test_a_model_that_declines_or_rejects_a_request_is_asked_again(chained: Callable[..., Chain]) -> None:
    for refusal in (Declined("not mine"), RequestError("no such tool"), ContextOverflow("too long")):
        first = Steps(refuses=refusal)
        async with served(chained(first, Streams("two"))) as desk:
            assert [said(await asked(desk, name)) for name in "ab"] == ["two", "two"]
        assert len(first.requests) == 2


async def test_failed_models_are_asked_where_no_other_answers(chained: Callable[..., Chain]) -> None:
    """A chain whose models are all down gives one error; each request tries them again, and the next one may answer."""
    first, second = Steps(StageFailed("one is down")), Steps(StageFailed("two is down"))
    async with served(chained(first, second)) as desk:
        for name in "ab":
            with pytest.raises(EngineError, match="two is down"):
                await asked(desk, name)
        first.pieces = ("one again",)
        assert said(await asked(desk, "c")) == "one again"


async def test_a_model_that_declines_last_does_not_hide_the_failure(chained: Callable[..., Chain]) -> None:
    first, second = Steps(StageFailed("a bug")), Streams("two")
    async with served(chained(first, second)) as desk:
        assert said(await asked(desk, "a")) == "two"
        first.pieces, second.pieces = (Declined("not mine"),), (StageFailed("two is down"),)
        with pytest.raises(EngineError, match="two is down"):
            await asked(desk, "b")


async def test_an_answer_that_a_lost_replica_had_begun_is_not_begun_anew_by_the_next_model(
    chained: Callable[..., Chain],
) -> None:
    first, second = Streams(StageFailed("still broken")), Streams("from the start")
    async with served(chained(first, second)) as desk:
        kept = (Text("half of ", 0), Checkpoint({chain.MODEL: 0, chain.STATE: {}}, stage="a"))
        lost = messages.Resume(client={}, onward={}, playing_s=None, kept=kept)
        desk.put(replace(opened("r"), resume=lost), messages.End("r"))
        await desk.ended("r")
        assert [failure.message for failure in desk.of(messages.Failed, "r")] == ["still broken"]
    assert second.begun == 0


@pytest.mark.parametrize(
    ("options", "match"),
    [({"skip_s": -1.0}, r"options\.skip_s: must be a finite number"), ({"url": "x"}, r"options\.url: unknown key")],
)
def test_options_of_a_chain_are_checked(chained: Callable[..., Chain], options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        chained(Steps("one"), Steps("two"), options=options)


async def test_a_model_without_sight_reads_a_note_in_place_of_a_picture(chained: Callable[..., Chain]) -> None:
    first, second = Steps(Declined("not mine")), Streams("yes")
    first.info = replace(Steps.info, facets=Facets(sees=frozenset({"image"})))
    made = chained(first, second)
    assert made.info.facets.sees == {"image"}
    picture = ImagePart(np.zeros((2, 2, 3), np.uint8))
    seen = Request(id="r", session="s", messages=(Message("user", (picture, TextPart("what is it"))),))
    async with served(made) as desk:
        desk.put(messages.Open("r", seen, ("a",), 64), messages.End("r"))
        await desk.ended("r")
    assert first.requests[0].messages[0].parts[0] == picture
    assert second.requests[0].messages[0].parts == (
        TextPart("[A picture that you cannot see.]"),
        TextPart("what is it"),
    )


async def test_a_broken_model_ends_the_worker(chained: Callable[..., Chain]) -> None:
    second = Streams("two")

    async def broken() -> None:
        raise Broken("gone for good")

    second.watch = broken
    with pytest.raises(Broken, match="gone for good"):
        await chained(Steps("one"), second).watch()


def test_a_chain_is_described_by_its_models(chained: Callable[..., Chain]) -> None:
    first, second = Steps("one"), Streams("two")
    first.info = replace(Steps.info, slots=4, replay="continue", facets=Facets(context=100))
    info = chained(first, second).info
    assert (info.slots, info.replay, info.feeds) == (4, "continue", kinds(VoiceText))
    assert (info.facets.context, info.facets.cost) == (500, TokenCost(character=0.3)), "those of the longest context"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"answers": False}, "is no language model"),
        ({"blocking": True}, "is no language model"),
        ({"takes": kinds(Text)}, r"models\[1\]: takes text, but models\[0\] transcript"),
        ({"feeds": frozenset({"x"})}, "no stage can take the different outputs"),
    ],
)
def test_models_that_do_not_fit_each_other_are_refused(
    chained: Callable[..., Chain], change: dict[str, Any], match: str
) -> None:
    second = Steps("two")
    second.info = replace(Steps.info, **change)
    with pytest.raises(ConfigError, match=match):
        chained(Steps("one"), second)


@pytest.mark.parametrize(
    ("stage", "match"),
    [
        (StageSpec(use="llm.chain", name="t"), "needs at least two"),
        (StageSpec(use="llm.chain", name="t", models=(ModelSpec(use="nano.thinker"),)), "needs at least two"),
        (StageSpec(use="script.thinker", name="t", models=(ModelSpec(use="nano.thinker"),)), "takes no models"),
    ],
)
def test_a_configuration_that_is_no_chain_is_refused(stage: StageSpec, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        describe(EngineSpec(stages=(stage,)))


async def test_the_second_server_answers_where_the_first_sends_no_token_in_time() -> None:
    """The next answer does not wait for it again."""
    async with scripted(stalled()) as first, scripted(stream(*words("from the second"))) as server:
        models = (
            ModelSpec(use="llm.openai", options={"url": first.url, "model": "m", "first_token_s": 0.2}),
            ModelSpec(use="llm.openai", options={"url": server.url, "model": "m"}),
        )
        stage = StageSpec(use="llm.chain", name="thinker", models=models)
        spec = EngineSpec(stages=(stage,), workers=(WorkerSpec(stages=("thinker",)),), launcher="inline")
        async with Engine(spec) as engine:
            for _ in range(2):
                async with engine.open(request(wants=IN_WRITING)) as chunks:
                    assert said(await whole(chunks)) == "from the second"
        assert len([one for one in first.asked if one.path.endswith("completions")]) <= 1


@pytest.mark.parametrize("wait_s", ["1", "3"])
async def test_a_busy_server_that_names_a_wait_is_passed_over_at_once(wait_s: str) -> None:
    """Alone it would be asked again after the wait, and then answer."""
    busy = answer(429, {"error": {"message": "Rate limit"}}, retry_after=wait_s)
    async with (
        scripted(busy, stream(*words("from the first")), models=answer(404)) as first,
        scripted(stream(*words("from the second"))) as server,
    ):
        models = tuple(
            ModelSpec(use="llm.openai", options={"url": url, "model": "m"}) for url in (first.url, server.url)
        )
        stage = StageSpec(use="llm.chain", name="thinker", models=models)
        spec = EngineSpec(stages=(stage,), workers=(WorkerSpec(stages=("thinker",)),), launcher="inline")
        async with Engine(spec) as engine, engine.open(request(wants=IN_WRITING)) as chunks:
            assert said(await whole(chunks)) == "from the second"
        assert len([one for one in first.asked if one.path.endswith("completions")]) == 1


async def test_the_second_server_answers_where_the_first_is_down() -> None:
    async with scripted(stream(*words("from the second"))) as server:
        down = {"url": "http://127.0.0.1:9/v1", "model": "m"}
        models = tuple(
            ModelSpec(use="llm.openai", options=options) for options in (down, {"url": server.url, "model": "m"})
        )
        stage = StageSpec(use="llm.chain", name="thinker", models=models)
        spec = EngineSpec(stages=(stage,), workers=(WorkerSpec(stages=("thinker",)),), launcher="inline")
        async with Engine(spec) as engine, engine.open(request(wants=IN_WRITING)) as chunks:
            got = await whole(chunks)
    assert said(got) == "from the second"
