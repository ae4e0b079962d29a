"""What each family of large networks promises through the whole engine, in the dtype that people run as in the one that
proves: on tiny checkpoints with random weights. What such a family says is held against its reference elsewhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from engine import Engine, EngineSpec, Message, Request, Sampling, TextPart, WorkerSpec
from engine.chunk import Audio, Codes, Output, Tensors, Text, Usage
from engine.core import IN_WRITING
from engine.deployment.config import ChunkSpec, HeartbeatSpec
from engine.worker.models.qwen2_5_omni.talker import Talker as Qwen25Talker
from engine.worker.models.qwen3_omni.talker import Talker as Qwen3Talker
from engine.worker.models.qwen3_tts.talker import Talker as TtsTalker
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.slots import Batch
from engine.worker.omni.thinker import OmniThinker
from engine.worker.stage_request import StageRequest
from engine.worker.talker import stage
from engine.worker.text.chat_encoder import Chat, TextPieces
from tests.engine.fakes import lose, until
from tests.engine.held import held_per_request
from tests.oracles import tiny_qwen2_5_omni, tiny_qwen3_omni, tiny_qwen3_tts

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "Hello there, how are you?"
SECONDS = 1.0
SAME = {"float32": 1e-4, "bfloat16": 2e-2}
"""How far the same sound may be from itself where its frames come in other pieces."""


@dataclass(frozen=True, slots=True)
class Family:
    """``make`` writes a checkpoint. A frame of codes is so many ``samples``, of which the last lacks some where the
    vocoder's edge does. ``thinks``: it writes its own text."""

    make: Callable[[Path], Path]
    talker: type[Any]
    samples: int
    lacking: int = 0
    thinks: bool = True


FAMILIES = {
    "qwen3_omni": Family(tiny_qwen3_omni.make, Qwen3Talker, 1920, lacking=555),
    "qwen2_5_omni": Family(tiny_qwen2_5_omni.make, Qwen25Talker, 480),
    "qwen3_tts": Family(tiny_qwen3_tts.make, TtsTalker, 1920, thinks=False),
}
DTYPES = ("float32", "bfloat16")
KINDS = [(family, dtype) for family in FAMILIES for dtype in DTYPES]
THINKING = [kind for kind in KINDS if FAMILIES[kind[0]].thinks]
KEPT = [*((kind, True) for kind in KINDS), *(((family, "bfloat16"), False) for family in FAMILIES)]
"""Where a lost talker's successor has what was given, and where not all of it, which is to be seen."""
Deployment = Callable[..., EngineSpec]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A family's checkpoint, made when it is first wanted."""
    return cache(lambda name: FAMILIES[name].make(tmp_path_factory.mktemp(name) / "checkpoint"))


@pytest.fixture(params=KINDS, ids=" in ".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param


@pytest.fixture
def deployment(weights: Callable[[str], Path]) -> Deployment:
    """A family in a dtype: each stage a worker of its own, with as many replicas as ``lost`` asks for."""

    def spec(name: str, dtype: str, lost: str = "") -> EngineSpec:
        stages = ("thinker", "talker", "code2wav") if FAMILIES[name].thinks else ("talker", "code2wav")
        workers = tuple(
            WorkerSpec(stages=(one,), replicas=2 if one == lost else 1, max_batch=8, dtype=dtype) for one in stages
        )
        return EngineSpec(
            model=name, workers=workers, weights=str(weights(name)), launcher="inline",
            heartbeat=HeartbeatSpec(interval_s=1.0, timeout_s=60.0), options={"context": 512},
            chunks=ChunkSpec() if name == "qwen2_5_omni" else ChunkSpec(first=1, growth=1.5, steady=4),
        )  # fmt: skip

    return spec


@pytest.fixture
async def engine(kind: tuple[str, str], deployment: Deployment) -> AsyncGenerator[Engine]:
    async with Engine(deployment(*kind)) as started:
        yield started


def told(id: str = "r", text: str = TEXT, **fields: Any) -> Request:
    given: dict[str, Any] = {
        "session": id, "dump": True, "say": text, "messages": (), "sampling": Sampling(seed=1),
        "max_audio_s": SECONDS,
    }  # fmt: skip
    return Request(id=id, **(given | fields))


@dataclass(slots=True)
class Answer:
    chunks: list[Output]

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, Text))

    @property
    def ids(self) -> list[int]:
        return [id for chunk in self.chunks if isinstance(chunk, Text) for id in chunk.token_ids]

    @property
    def codes(self) -> list[list[int]]:
        frames = [chunk.frames.reshape(len(chunk.frames), -1) for chunk in self.chunks if isinstance(chunk, Codes)]
        return [frame for part in frames for frame in part.tolist()]

    @property
    def wave(self) -> np.ndarray:
        waves = [chunk.wave for chunk in self.chunks if isinstance(chunk, Audio)]
        return np.concatenate([np.zeros(0, np.float32), *waves])


async def answer(engine: Engine, request: Request, lost: str = "", after: int = 0) -> Answer:
    """An answer, in which a replica is lost behind so many frames of codes, or tokens if that is the thinker's."""
    said = Answer([])
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            said.chunks.append(chunk)
            if lost and len(said.ids if lost == "thinker" else said.codes) >= after:
                assert lose(engine, lost)
                lost = ""
    assert not lost
    return said


def whole(said: Answer, family: Family) -> bool:
    """Whether all that was drawn can be heard, and nothing else."""
    samples = family.samples * len(said.codes) - family.lacking
    return 0 < len(said.wave) == samples and bool(np.isfinite(said.wave).all())


async def test_an_answer_says_its_text_and_ends_with_its_usage(kind: tuple[str, str], engine: Engine) -> None:
    said = await answer(engine, told())
    assert said.text == TEXT
    assert whole(said, FAMILIES[kind[0]])
    assert len(said.wave) <= SECONDS * 24_000
    assert np.abs(said.wave).max() <= 1
    assert [chunk.finish for chunk in said.chunks if isinstance(chunk, Usage)][-1] in ("stop", "length")


async def test_the_same_request_gives_the_same_answer(kind: tuple[str, str], engine: Engine) -> None:
    one, two = [await answer(engine, told(id)) for id in "ab"]
    other = await answer(engine, told("c", sampling=Sampling(seed=2)))
    assert (one.text, one.codes) == (two.text, two.codes)
    np.testing.assert_allclose(one.wave, two.wave, rtol=0, atol=SAME[kind[1]])
    assert other.codes != one.codes, "else it would prove nothing"


async def test_four_at_once_answer_as_each_alone(kind: tuple[str, str], engine: Engine) -> None:
    """In bfloat16 a batch rounds otherwise than one alone: each is then an answer to its own text, whole."""
    texts = [f"Number {n}. {TEXT}" for n in range(4)]
    together = await asyncio.gather(*(answer(engine, told(f"r{n}", text)) for n, text in enumerate(texts)))
    for text, said in zip(texts, together, strict=True):
        assert said.text == text
        assert whole(said, FAMILIES[kind[0]])
        if kind[1] == "float32":
            alone = await answer(engine, told("alone", text))
            assert alone.codes == said.codes
            np.testing.assert_allclose(alone.wave, said.wave, rtol=0, atol=SAME[kind[1]])
    assert together[0].codes != together[1].codes, "else it would prove nothing"


async def test_nothing_is_kept_of_requests_that_are_over(engine: Engine) -> None:
    """Of one that was answered, and of one that was left in the middle."""

    async def one(i: int) -> None:
        await answer(engine, told(session="", id=f"{i}", max_audio_s=0.2))
        async with engine.open(told(session="", id=f"left{i}")) as chunks:
            await anext(chunks)

    assert await held_per_request(one, 4) < 20_000
    assert all(not one["leased"] and not one["waiting"] for one in engine.stats().values())


async def test_left_at_random_points_nothing_is_left(engine: Engine) -> None:
    rng, before = random.Random(3), len(asyncio.all_tasks())
    for i in range(20):
        async with engine.open(told(f"r{i}")) as chunks:
            for _ in range(rng.randrange(12)):
                if rng.random() < 0.5:
                    await asyncio.sleep(0)
                elif await anext(chunks, None) is None:
                    break
        assert all(not one["leased"] and not one["waiting"] for one in engine.stats().values())
    await until(lambda: len(asyncio.all_tasks()) == before)
    assert (await answer(engine, told())).text == TEXT


@pytest.mark.seed("A4.16")
async def test_where_the_sounds_replica_is_lost_the_sound_goes_on(
    kind: tuple[str, str], deployment: Deployment
) -> None:
    """The codes are those of the one that lives on, whatever the dtype."""
    async with Engine(deployment(*kind, lost="code2wav")) as engine:
        unbroken = await answer(engine, told())
        after = len(unbroken.codes) // 2
        said = await answer(engine, told(), "code2wav", after)
    assert said.codes == unbroken.codes
    assert len(said.wave) == len(unbroken.wave)
    np.testing.assert_allclose(said.wave, unbroken.wave, rtol=0, atol=SAME[kind[1]])


@pytest.mark.seed("A4.16")
@pytest.mark.parametrize(("kind", "kept"), KEPT, ids=str, indirect=["kind"])
async def test_a_lost_talkers_successor_speaks_on_behind_what_was_given(
    kept: bool, kind: tuple[str, str], deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it would draw others, as it may in bfloat16; were it to draw the last again, that would be seen."""
    family = FAMILIES[kind[0]]
    spoken = another_choice(family.talker, monkeypatch)
    if not kept:
        before = stage.spoken_before
        monkeypatch.setattr(stage, "spoken_before", lambda req, groups: before(req, groups)[:-3])
    async with Engine(deployment(*kind, lost="talker")) as engine:
        said = await answer(engine, told(max_audio_s=4.0), "talker", 10)
    assert len(spoken) == 2, "one talker was lost, and one went on"
    assert (spoken[1].tolist() == said.codes) == kept
    assert whole(said, family)


def another_choice(talker: type[Any], patch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Each replica draws by a seed of its own. Returns the frames that each talker has behind it."""
    opened, framed, seeds, spoken = talker.open, talker._frame, iter(range(1, 100)), list[np.ndarray]()

    def open_(self: Any, req: StageRequest) -> None:
        opened(self, req)
        req.state.params = replace(req.state.params, seed=next(seeds))
        spoken.append(req.state.spoken[req.state.given :])

    def frame(self: Any, req: StageRequest, drawn: np.ndarray) -> Any:
        chunks = framed(self, req, drawn)
        frames = [chunk.frames for chunk in cast("list[Any]", chunks) if isinstance(chunk, Codes)]
        spoken[-1] = np.concatenate([spoken[-1], *frames])
        return chunks

    patch.setattr(talker, "open", open_)
    patch.setattr(talker, "_frame", frame)
    return spoken


WRITES: dict[str, Any] = {
    "say": None, "messages": (Message("user", (TextPart("How are you?"),)),), "max_text_tokens": 16, "max_audio_s": 1.6,
    "sampling": Sampling(temperature=1.5, seed=3),
}  # fmt: skip


@pytest.mark.seed("A4.16")
@pytest.mark.parametrize("after", [2, 8])
@pytest.mark.parametrize("kind", THINKING, ids=" in ".join, indirect=True)
async def test_a_lost_thinkers_successor_writes_on_and_all_of_it_is_spoken(
    after: int, kind: tuple[str, str], deployment: Deployment, weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 the same answer; in bfloat16 one answer, although the successor would draw another."""
    if kind[1] == "bfloat16":
        another_thought(monkeypatch)
    heard = text_ends(FAMILIES[kind[0]].talker, monkeypatch)
    async with Engine(deployment(*kind, lost="thinker")) as engine:
        said = await answer(engine, told(**WRITES), "thinker", after)
        unbroken = await answer(engine, told("u", **WRITES)) if kind[1] == "float32" else said
    chat = Chat(weights(kind[0]))
    assert said.text == chat.text(said.ids), "the characters of one answer"
    assert len(said.ids) > after
    pieces = TextPieces(chat)
    written = np.cumsum([len(pieces.feed(id)[0]) for id in said.ids]).tolist()
    assert heard["r"] == written[: len(heard["r"])], "the voice was given each of its tokens, and each once"
    assert len(heard["r"]) > after
    assert whole(said, FAMILIES[kind[0]])
    assert (said.text, said.codes) == (unbroken.text, unbroken.codes)


def another_thought(patch: pytest.MonkeyPatch) -> None:
    """Each thinker draws by a seed of its own, as a batch of another size does in bfloat16, only surely."""
    opened, seeds = OmniThinker.open, iter(range(100, 10_000))

    def open_(self: Any, req: StageRequest) -> None:
        opened(self, req)
        req.state.params = replace(req.state.params, seed=next(seeds))

    patch.setattr(OmniThinker, "open", open_)


def text_ends(talker: type[Any], patch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Behind how many characters of its answer each token is that the talker was given of a request."""
    given: dict[str, list[int]] = {}
    adapt = talker.adapt

    async def spying(self: Any, req: StageRequest, inputs: Any) -> Any:
        ends = given[req.request.id] = list[int]()

        async def noted() -> Any:
            async for chunk in inputs:
                if isinstance(chunk, Tensors) and "text_end" in chunk.fields:
                    ends.append(chunk.fields["text_end"])
                yield chunk

        upstream: Any = noted()
        async for item in adapt(self, req, upstream):
            yield item

    patch.setattr(talker, "adapt", spying)
    return given


@pytest.mark.parametrize("kind", THINKING, ids=" in ".join, indirect=True)
async def test_a_sessions_next_turn_computes_only_what_is_new(
    kind: tuple[str, str], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 it says what it says in a session that has nothing of it."""
    computed, append = [0], TransformerDecoder.append

    def counting(self: TransformerDecoder, batch: Batch, *more: Any) -> Any:
        computed[0] += sum(batch.counts)
        return append(self, batch, *more)

    monkeypatch.setattr(TransformerDecoder, "append", counting)
    turns = [Message("user", (TextPart("How far is it to the next town along the river? " * 6),))]
    fields: dict[str, Any] = {"say": None, "max_text_tokens": 6, "max_audio_s": 0.4}
    first = await answer(engine, told("first", session="s", messages=tuple(turns), **fields))
    turns += [Message("assistant", (TextPart(first.text),)), Message("user", (TextPart("And back?"),))]
    costs, said = list[int](), list[Answer]()
    for session in ("s", "another"):
        computed[0] = 0
        said.append(await answer(engine, told(f"in {session}", session=session, messages=tuple(turns), **fields)))
        costs.append(computed[0])
    assert 0 < costs[0] < costs[1] / 2
    if kind[1] == "float32":
        assert (said[0].text, said[0].codes) == (said[1].text, said[1].codes)


@pytest.mark.parametrize("kind", THINKING, ids=" in ".join, indirect=True)
async def test_an_answer_in_writing_takes_no_voice(engine: Engine) -> None:
    messages = (Message("user", (TextPart("How are you?"),)),)
    said = await answer(engine, told(say=None, messages=messages, wants=IN_WRITING, max_text_tokens=6))
    assert said.text
    assert (len(said.codes), len(said.wave)) == (0, 0)
