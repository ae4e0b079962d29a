"""A replica that is lost mid-answer costs the listener no word: he gets, sample for sample, what he would have got.

Over families, layouts and stages. The same check must fail when what was given is not left out, or what was fed is
not fed again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineError, EngineSpec, Message, Request, StageSpec, TextPart, WorkerSpec
from engine.chunk import Audio, Chunk, Codes, Output, Speech, Text, ToolCall, Transcript, Usage
from engine.core import IN_WRITING
from engine.delivered import RecoveryLog
from engine.deployment.config import ChunkSpec, ModelSpec
from engine.deployment.describe import stages_of
from engine.errors import ReplicaLost
from engine.stream import ReplayBuffer
from engine.worker.codec import STATE_FRAMES
from engine.worker.stage_request import StageRequest
from engine.worker.uses import stage_type
from tests.engine.fakes import lose, until, whole

SAME = 1e-5
"""Where sound is cut is a matter of time, and the last bit of a float32 one of where it is cut; sound goes to 1."""

LAYOUTS = {
    "together": (("ears", "thinker", "talker", "code2wav"),),
    "words and voice": (("ears", "thinker"), ("talker", "code2wav")),
    "each alone": (("ears",), ("thinker",), ("talker",), ("code2wav",)),
}
CHAIN = "chain"
"""The name of the deployment that `chained` makes."""
LONG = " ".join(f"This is sentence {n} of twelve, and there are more." for n in range(1, 13))
SAID = "Good morning to you all, this is a rather long answer, and it goes on for quite a while until it has ended."


def spec(model: str, layout: str, replicas: int = 2) -> EngineSpec:
    workers = tuple(WorkerSpec(stages=stages, replicas=replicas, max_batch=4) for stages in LAYOUTS[layout])
    whole = EngineSpec(model="nano" if model == CHAIN else model, workers=workers, launcher="inline", empty_s=0.05)
    return chained(whole) if model == CHAIN else whole


def chained(spec: EngineSpec) -> EngineSpec:
    """Return nano's pipeline, whose thinker hands what it declines over to the script's."""
    models = (ModelSpec(use="nano.thinker"), ModelSpec(use="script.thinker"))
    stages = stages_of("nano", None, {})
    thinkers = (StageSpec(name="thinker", use="llm.chain", models=models) if s.name == "thinker" else s for s in stages)
    return replace(spec, model=None, stages=tuple(thinkers))


def told(text: str = SAID, **fields: Any) -> Request:
    """What the script's thinker answers with these words."""
    return asked(f"say: {text}", **fields)


def asked(text: str, **fields: Any) -> Request:
    return Request(id="r", session="s", messages=(Message("user", (TextPart(text),)),), **fields)


@dataclass(slots=True)
class Got:
    """All that a client was given."""

    text: str
    ids: list[int]
    sound: np.ndarray[Any, Any]
    others: list[Output]

    @classmethod
    def of(cls, chunks: list[Output]) -> Got:
        texts = [chunk for chunk in chunks if isinstance(chunk, Text)]
        sounds = [chunk.wave for chunk in chunks if isinstance(chunk, Audio)]
        return cls(
            "".join(chunk.text for chunk in texts),
            [id for chunk in texts for id in chunk.token_ids],
            np.concatenate(sounds) if sounds else np.zeros(0),
            [c for c in chunks if isinstance(c, Usage | ToolCall) or (isinstance(c, Transcript) and c.final)],
        )

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Got)
        words = (self.text, self.ids, self.others) == (other.text, other.ids, other.others)
        return (
            words and self.sound.shape == other.sound.shape and np.abs(self.sound - other.sound).max(initial=0) < SAME
        )


@pytest.fixture(autouse=True)
def losses_cost_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was lost twice is back at once: tests/engine/control/test_membership.py says how long it waits otherwise."""
    monkeypatch.setattr("engine.control.membership.FIRST_PENALTY_S", 0.01)


async def whole_again(engine: Engine) -> None:
    """Wait until the lost have come back, and nothing is left of who was served."""
    await until(lambda: all(s["replicas"] == 2 and not s["leased"] for s in engine.stats().values()), 10_000)


async def read(
    engine: Engine, request: Request, inputs: Any = None, lost: str = "", after: int = 0, late: float = 0.0
) -> Got:
    """An answer; a replica is ``lost`` after so many chunks, or so ``late`` in its text (1 is its end)."""
    chunks: list[Output] = []
    async with engine.open(request, inputs) as answer:
        async for chunk in answer:
            chunks.append(chunk)
            reached = late and isinstance(chunk, Audio) and chunk.text_end >= late * len(request.say or "")
            if lost and (len(chunks) == after or reached):
                assert lose(engine, lost)
                lost = ""
    return Got.of(chunks)


CASES = [("script", layout, f"say: {SAID}", 2) for layout in LAYOUTS] + [
    ("nano", "words and voice", "Spell the word morning.", 2),
    (CHAIN, "words and voice", "Spell the word morning.", 2),
    (CHAIN, "each alone", "What is the longest river in Africa?", 2),
]


@pytest.mark.seed("A1.12", "A4.16")
@pytest.mark.parametrize(("model", "layout", "text", "times"), CASES)
async def test_an_answer_goes_on_where_a_lost_replica_was(model: str, layout: str, text: str, times: int) -> None:
    draw = random.Random(layout)
    async with Engine(spec(model, layout)) as engine:
        voice = engine.model.voice_ids[-1]  # that a successor does not speak by itself
        reference = await read(engine, asked(text, voice=voice))
        assert reference.sound.size
        for stages in LAYOUTS[layout]:
            for _ in range(times if stages != ("ears",) else 0):
                after = draw.randrange(1, len(reference.text) // 5)
                assert await read(engine, asked(text, voice=voice), lost=stages[-1], after=after) == reference
                await whole_again(engine)


def no_skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.worker.loop.recovery.fresh", lambda owed, chunk: chunk)


def no_rewinding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayBuffer, "rewind", lambda self: None)


@pytest.mark.parametrize(
    ("sabotage", "stage"), [(no_skipping, "thinker"), (no_skipping, "talker"), (no_rewinding, "talker")]
)
async def test_that_check_fails_when_words_are_repeated_or_lost(
    sabotage: Any, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(spec("script", "each alone")) as engine:
        reference = await read(engine, told())
        sabotage(monkeypatch)
        assert await read(engine, told()) == reference
        assert await read(engine, told(), lost=stage, after=9) != reference


class Work:
    """How many frames the talkers and the code2wavs of a family have computed, on whatever replica."""

    def __init__(self, model: str, patch: pytest.MonkeyPatch) -> None:
        self.frames = {"talker": 0, "code2wav": 0}
        for name in self.frames:
            self._count(name, stage_type(f"{model}.{name}"), patch)

    def _count(self, name: str, stage: Any, patch: pytest.MonkeyPatch) -> None:
        step = stage.step

        def counting(stage: Any, reqs: Sequence[StageRequest]) -> Any:
            if name == "code2wav":
                self.frames[name] += sum(len(req.pending[0].codes) for req in reqs if req.pending)
            results = step(stage, reqs)
            if name == "talker":
                self.frames[name] += sum(isinstance(chunk, Codes) for chunks in results for chunk in chunks)
            return results

        patch.setattr(stage, "step", counting)


async def made_again(model: str, patch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many frames are computed a second time when the voice is lost late in a long answer, which stays the same."""
    request = Request(id="r", session="s", messages=(), say=LONG, max_audio_s=80.0, lead_s=None)
    with patch.context() as patched:
        async with Engine(spec(model, "words and voice")) as engine:
            work = Work(model, patched)
            reference = await read(engine, request)
            frames = dict(work.frames)
            assert frames["talker"] == frames["code2wav"] > 300
            again = await read(engine, request, lost="code2wav", late=0.8)
            assert again == reference
    return {name: number - 2 * frames[name] for name, number in work.frames.items()}


@pytest.mark.seed("A4.16")
@pytest.mark.parametrize("model", ["script", "nano"])
async def test_late_in_a_long_answer_little_is_made_again(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state's worth, and what lay between the last one and the loss: not the answer from its beginning."""
    again = await made_again(model, monkeypatch)
    assert max(again.values()) <= STATE_FRAMES + 2 * ChunkSpec().steady, again


async def test_without_what_was_kept_much_would_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(RecoveryLog, "chunks", lambda self: ())
    again = await made_again("script", monkeypatch)
    assert min(again.values()) > 200, again


async def spoken(engine: Engine, losses: dict[int, str]) -> AsyncGenerator[Chunk]:
    """Two seconds of a user's turn, 20 ms at a time; replicas are lost after some of it."""
    for i in range(100):
        yield Speech(np.zeros(320, np.int16))
        await asyncio.sleep(0)
        if i in losses:
            assert lose(engine, losses[i])


@pytest.mark.parametrize("layout", ["together", "each alone"])
async def test_a_turn_that_is_still_being_spoken_is_not_lost_either(layout: str) -> None:
    live = Request(id="r", session="s", messages=(), live=True)
    async with Engine(spec("script", layout)) as engine:
        reference = await read(engine, live, spoken(engine, {}))
        assert reference.text == "I heard 2.0 seconds."
        for at in (3, 50, 99):
            assert await read(engine, live, spoken(engine, {at: "ears"})) == reference
            await whole_again(engine)


async def test_who_has_lost_two_replicas_is_told_so_and_may_ask_again() -> None:
    async with Engine(spec("script", "each alone")) as engine:
        async with engine.open(told()) as chunks:
            await anext(chunks)
            for _ in range(2):
                await until(lambda: lose(engine, "thinker"))
            with pytest.raises(ReplicaLost, match="second"):
                await whole(chunks)
        await whole_again(engine)
        assert (await read(engine, told())).text


@pytest.mark.seed("A1.14", "A3.8")
async def test_where_none_is_left_there_is_one_error_and_the_others_go_on() -> None:
    one = replace(spec("script", "each alone", replicas=1), empty_s=0.0)
    async with Engine(one) as engine:
        with pytest.raises(EngineError, match=r"talker@.* was lost, and no replica of talker"):
            await read(engine, told(), lost="talker", after=5)
        only_words = await read(engine, told(wants=IN_WRITING))
        assert only_words.text == SAID
        await until(lambda: engine.ready, 10_000)
        assert (await read(engine, told())).sound.size


async def test_an_answer_that_is_left_while_it_goes_on_elsewhere_leaves_nothing() -> None:
    draw = random.Random(7)
    async with Engine(spec("script", "each alone")) as engine:
        for _ in range(12):
            async with engine.open(told()) as chunks:
                await anext(chunks)
                lose(engine, draw.choice(["thinker", "talker", "code2wav"]))
                for _ in range(draw.randrange(40)):
                    await asyncio.sleep(0)
            await whole_again(engine)
