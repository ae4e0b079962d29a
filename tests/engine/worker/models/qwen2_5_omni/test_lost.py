"""Qwen2.5-Omni among others, and where a replica is lost in mid-answer: its listener gets what they would have got."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, Sampling, WorkerSpec
from engine.chunk import Audio, Chunk, Codes, Text
from engine.core import IN_WRITING
from engine.delivered import RecoveryLog
from engine.deployment.config import HeartbeatSpec
from engine.worker.models.qwen2_5_omni.thinker import Thinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.text.chat_encoder import Chat
from tests.engine.fakes import lose
from tests.engine.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, request, spec
from tests.oracles.talk import Said, ask

pytestmark = pytest.mark.usefixtures("one_thread")
CODES, TOKENS = 60, 16
SAME = 1e-4


def lossy(folder: Any, lost: str, dtype: str = "float32") -> EngineSpec:
    """Two replicas of the thinker, or of the voice."""
    stages = (("thinker",), ("talker", "code2wav"))
    workers = tuple(WorkerSpec(stages=one, replicas=2 if lost in one else 1, dtype=dtype) for one in stages)
    return replace(
        spec(folder), workers=workers, launcher="inline", heartbeat=HeartbeatSpec(interval_s=1.0, timeout_s=60.0)
    )


async def answered(engine: Engine, lost: str = "", after: int = 0, **more: Any) -> Said:
    """An answer; a replica is ``lost`` behind so many characters of its text, or codes of its voice."""
    said, codes, waves = Said(), list[np.ndarray](), list[np.ndarray]()
    asked = request("t", PROMPTS["history"], TOKENS, CODES, sampling=Sampling(temperature=0.9, seed=1), **more)
    async with engine.open(asked) as chunks:
        async for chunk in chunks:
            match chunk:
                case Text(text, _, ids):
                    said.text, said.ids = said.text + text, [*said.ids, *ids]
                case Codes(frames):
                    codes.append(frames)
                case Audio(wave):
                    waves.append(wave)
                case _:
                    continue
            given = len(said.text) if lost == "thinker" else sum(map(len, codes))
            if lost and given >= after and (lost == "thinker" or waves):
                assert lose(engine, lost)
                lost = ""
    assert not lost
    said.codes = np.concatenate(codes) if codes else said.codes
    said.wave = np.concatenate(waves) if waves else said.wave
    return said


def same(one: Said, other: Said) -> bool:
    words = (one.text, one.ids, one.codes.tolist()) == (other.text, other.ids, other.codes.tolist())
    return words and one.wave.shape == other.wave.shape and float(np.abs(one.wave - other.wave).max(initial=0)) <= SAME


@pytest.mark.seed("A4.16", "A1.12")
@pytest.mark.parametrize(("lost", "replay"), [("thinker", "exact"), ("thinker", "continue"), ("talker", "exact")])
async def test_an_answer_goes_on_where_a_lost_replica_was(
    lost: str, replay: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is continued, as in bfloat16: the rows that are prefilled are those that were spoken."""
    monkeypatch.setattr("engine.worker.omni.thinker.replay_of", lambda *_: replay)
    draw = random.Random(lost)
    async with Engine(lossy(checkpoint("plain"), lost)) as engine:
        reference = await answered(engine)
        assert len(reference.wave) == 480 * len(reference.codes) > 0
        after = draw.randrange(1, len(reference.text if lost == "thinker" else reference.codes) - 20)
        assert same(await answered(engine, lost, after), reference)


async def test_that_check_fails_where_what_was_given_is_given_again(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    async with Engine(lossy(checkpoint("plain"), "talker")) as engine:
        reference = await answered(engine)
        monkeypatch.setattr("engine.worker.loop.recovery.fresh", lambda owed, chunk: chunk)
        monkeypatch.setattr(RecoveryLog, "chunks", lambda self: tuple[Chunk, ...]())
        assert not same(await answered(engine, "talker", 30), reference)


@pytest.mark.parametrize("kept", [True, False])
async def test_in_bfloat16_the_thinker_goes_on_behind_what_was_given(
    kept: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its successor would draw something else; without what was kept, two answers are spliced."""
    opened, seeds, folder = Thinker.open, iter(range(100, 10_000)), checkpoint("plain")

    def another_choice(self: Thinker, req: StageRequest) -> None:
        opened(self, req)
        req.state.params = replace(req.state.params, seed=next(seeds), temperature=1.5)

    monkeypatch.setattr(Thinker, "open", another_choice)
    if not kept:
        monkeypatch.setattr(Thinker, "_kept", lambda self, req: type(req.pending)())
    async with Engine(lossy(folder, "thinker", "bfloat16")) as engine:
        said = await answered(engine, "thinker", 8, wants=IN_WRITING)
    assert (said.text == Chat(folder).text(said.ids)) == kept


def test_float32_draws_the_same_again_and_bfloat16_says_that_it_goes_on(checkpoint: Folder) -> None:
    config = StageConfig(weights=checkpoint("plain"))
    assert Thinker.describe(config).replay == "exact"
    assert Thinker.describe(replace(config, dtype="bfloat16")).replay == "continue"


@pytest.mark.seed("A2.18")
async def test_four_at_once_answer_as_each_alone(checkpoint: Folder) -> None:
    titles = ["text", "history", "audio and image", "a video"]
    async with Engine(spec(checkpoint("plain"))) as engine:
        alone = [await ask(engine, request(f"alone {title}", PROMPTS[title], 6, 36)) for title in titles]
        together = await asyncio.gather(*(ask(engine, request(title, PROMPTS[title], 6, 36)) for title in titles))
    for one, other in zip(alone, together, strict=True):
        assert same(one, other)
    assert not same(alone[0], alone[1]), "else it would prove nothing"
