"""In bfloat16 Qwen3-Omni's thinker goes on behind the tokens that were given, since it would not draw them again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, Sampling, WorkerSpec
from engine.chunk import Codes, Text, ToolCall, Usage
from engine.core import IN_WRITING, ToolDefinition
from engine.deployment.config import HeartbeatSpec
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.text.chat_encoder import Chat
from tests.engine.fakes import lose, until
from tests.engine.worker.models.test_contracts import another_thought
from tests.oracles.qwen3_omni import Turn
from tests.oracles.talk import request

pytestmark = pytest.mark.usefixtures("one_thread")
TURNS: list[Turn] = [("user", ["Hello, how are you today?"])]
TOKENS = 40
SILENT = -1


@dataclass
class Given:
    texts: list[Text] = field(default_factory=list)
    others: list[Any] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    codes: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(one.text for one in self.texts)


def spec(folder: Path, dtype: str = "bfloat16", apart: bool = True) -> EngineSpec:
    stages = (("thinker",), ("talker", "code2wav")) if apart else (("thinker", "talker", "code2wav"),)
    workers = tuple(WorkerSpec(stages=one, replicas=2 if "thinker" in one else 1, dtype=dtype) for one in stages)
    return EngineSpec(
        model="qwen3_omni", workers=workers, weights=str(folder), launcher="inline", options={"context": 512},
        heartbeat=HeartbeatSpec(interval_s=1.0, timeout_s=60.0),
    )  # fmt: skip


async def given(engine: Engine, lost_after: int | None, seed: int = 3, **fields: Any) -> tuple[Given, int]:
    """An answer whose thinker is lost behind so many chunks of text, and how many had been given by then."""
    found, before = Given(), 0
    asked = request("t", TURNS, TOKENS, 6, sampling=Sampling(temperature=1.5, seed=seed), **fields)
    async with engine.open(asked) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Text):
                found.texts.append(chunk)
                found.ids += chunk.token_ids
                if len(found.texts) == lost_after:
                    before = len(found.ids)
                    assert lose(engine, "thinker")
            elif isinstance(chunk, Codes):
                found.codes.append(chunk.frames)
            elif isinstance(chunk, Usage | ToolCall):
                found.others.append(chunk)
    return found, before


@pytest.mark.parametrize("apart", [True, False])
async def test_what_was_given_is_kept_and_the_rest_is_behind_it(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """Although the successor would draw something else: never two answers in one."""
    monkeypatch.setattr("engine.control.membership.FIRST_PENALTY_S", 0.01)
    another_thought(monkeypatch)
    spoken = spied(monkeypatch)
    folder = checkpoint("plain")
    chat, draw = Chat(folder), random.Random(int(apart))
    async with Engine(spec(folder, apart=apart)) as engine:
        for _ in range(4):
            await until(lambda: all(len(pool) >= 1 for pool in engine._fleet.pools.values()), 10_000)
            await until(lambda: len(engine._fleet.pools["thinker"]) == 2, 10_000)
            spoken.clear()
            found, before = await given(engine, draw.randrange(1, 12))
            assert before
            assert found.text == chat.text(found.ids), "one answer, as its own tokens have it"
            assert [one.start for one in found.texts] == [
                sum(len(one.text) for one in found.texts[:n]) for n in range(len(found.texts))
            ]
            assert {one.output_tokens for one in found.others if isinstance(one, Usage)} <= {*range(1, TOKENS + 1)}
            heard = list(spoken.values())[-1]
            assert heard == found.ids[: len(heard)], "the voice was given what the client was"


def spied(patch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """The text's tokens that each request at the talker was given, and SILENT where it was told to stop."""
    from engine.worker.models.qwen3_omni import talker
    from engine.worker.models.qwen3_omni.speakable import TextToken
    from engine.worker.omni.talker_feed import TextEnd, read

    given: dict[int, list[int]] = {}
    adapt = talker.Talker.adapt

    async def spying(self: Any, req: StageRequest, inputs: Any) -> Any:
        ids = given[id(req)] = []

        async def noted() -> Any:
            async for chunk in inputs:
                token = read(chunk, self.structs())
                if isinstance(token, TextToken | TextEnd):
                    ids.append(token.id if isinstance(token, TextToken) else SILENT)
                yield chunk

        upstream: Any = noted()
        async for item in adapt(self, req, upstream):
            yield item

    patch.setattr(talker.Talker, "adapt", spying)
    return given


async def test_what_was_given_is_prefilled_and_spoken_on_as_if_nothing_had_happened(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, where a successor draws the same: so the rows that it prefills are those that were written."""
    monkeypatch.setattr("engine.worker.omni.thinker.replay_of", lambda *_: "continue")
    written: list[int] = []
    write = Thinker._write
    monkeypatch.setattr(Thinker, "_write", lambda self, reqs: written.append(len(reqs)) or write(self, reqs))
    async with Engine(spec(checkpoint("plain"), "float32")) as engine:
        reference, _ = await given(engine, None)
        alone = sum(written)
        found, before = await given(engine, 12)
    assert (found.text, found.ids, found.others) == (reference.text, reference.ids, reference.others)
    assert np.array_equal(np.concatenate(found.codes), np.concatenate(reference.codes))
    assert before > 8
    assert sum(written) <= 2 * alone + 3, "tokens that were given are written once, and not again one by one"


@pytest.mark.parametrize("kept", [True, False])
async def test_a_call_that_silenced_the_voice_goes_on(
    kept: bool, checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its successor would say more instead: nobody would hear that, as happens without what was kept."""
    chat, lives = Chat(checkpoint("plain")), list[Any]()
    words, more = (chat.encode(text) for text in ("One moment.", " Or hello there, I am well."))
    call = [chat.added["<tool_call>"], *chat.encode('{"name": "city", "arguments": {}}'), chat.added["</tool_call>"]]
    end = chat.added["<|im_end|>"]
    take = Thinker._take

    def drawn(self: Thinker, req: StageRequest, token: int) -> Any:
        thought = req.state
        if thought not in lives:
            lives.append(thought)
        if thought.call is not None:
            if len(thought.call) == 4 and len(lives) == 1:
                assert lose(engine, "thinker")
            token = call[len(thought.call)]
        else:
            wanted = [*words, *([call[0]] if thought is lives[0] else [*more, end])]
            token = end if thought.called else wanted[thought.num_output_tokens]
        return take(self, req, token)

    monkeypatch.setattr(Thinker, "_take", drawn)
    if not kept:
        monkeypatch.setattr(StageRequest, "checkpoint", None)
    spoken = spied(monkeypatch)
    async with Engine(spec(checkpoint("plain"))) as engine:
        found, _ = await given(engine, None, tools=(ToolDefinition("city", "", {}),))
    calls = [one.arguments for one in found.others if isinstance(one, ToolCall)]
    assert len(lives) == 2
    assert (found.text == "One moment." and calls == ["{}"]) == kept
    assert (list(spoken.values())[-1] == [id for one in found.texts for id in one.token_ids] + [SILENT]) == kept


async def test_without_what_was_kept_two_answers_would_be_spliced(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    another_thought(monkeypatch)
    monkeypatch.setattr(Thinker, "_kept", lambda self, req: type(req.pending)())
    folder = checkpoint("plain")
    async with Engine(spec(folder)) as engine:
        found, _ = await given(engine, 8, wants=IN_WRITING)
    assert found.text != Chat(folder).text(found.ids), "the characters of one answer, and then another's"


def test_float32_draws_the_same_again_and_bfloat16_says_that_it_goes_on(checkpoint: Callable[[str], Path]) -> None:
    config = StageConfig(weights=checkpoint("plain"))
    assert Thinker.describe(config).replay == "exact"
    assert Thinker.describe(replace(config, dtype="bfloat16")).replay == "continue"
