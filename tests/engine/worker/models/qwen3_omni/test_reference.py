"""Qwen3-Omni through the whole engine: token for token, code for code, sample for sample as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Engine
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.omni.answer_writer import AnswerWriter
from engine.worker.omni.positions import RopePositions
from tests.engine.worker.models.qwen3_omni.cases import CLIP, PROMPTS, VIDEOS, Folder, Reference, compare
from tests.oracles.qwen3_omni import Video
from tests.oracles.talk import ask, request, spec

MIXED = ("media in several turns", "video")


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("wide", tuple(PROMPTS)), ("plain", MIXED), ("deep", MIXED),
        *(pytest.param(name, tuple(PROMPTS), marks=pytest.mark.soak) for name in ("plain", "deep")),
    ],
)  # fmt: skip
async def test_the_engine_says_what_the_reference_says(
    name: str, titles: tuple[str, ...], checkpoint: Folder, oracle: Reference
) -> None:
    """Every conversation on one checkpoint; on the others, whose sizes differ, those that have a bit of everything."""
    reference, compared = oracle(name), list[tuple[int, int, float]]()
    async with Engine(spec(checkpoint(name), piece=40)) as engine:
        for title in titles:
            turns = PROMPTS[title]
            said = await ask(engine, request(title, turns))
            answer = reference.answer(turns, 8, 12)
            assert said.prompt == reference.inputs(turns)["input_ids"][0].tolist(), title
            compared.append(compare(said, answer, reference.sound(said.codes)))
            assert len(said.ids) == 8
            assert len(said.codes) == 12
    tokens, codes, farthest = zip(*compared, strict=True)
    print(
        f"{name}: {sum(tokens)} tokens and {sum(codes)} codes of {len(titles)} answers are the reference's, the sound "
        f"within {max(farthest):.1e}"
    )


@pytest.mark.parametrize("title", VIDEOS)
async def test_videos_are_seen_as_the_reference_sees_them(title: str, checkpoint: Folder, oracle: Reference) -> None:
    reference, turns = oracle("plain"), VIDEOS[title]
    answer = reference.answer(turns, 6, 8)
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", turns, 6, 8))
    assert said.prompt == reference.inputs(turns)["input_ids"][0].tolist()
    tokens, codes, farthest = compare(said, answer, reference.sound(said.codes))
    print(f"{title}: {tokens} tokens and {codes} codes are the reference's, the sound within {farthest:.1e}")
    assert len(said.codes) > 4


async def test_another_frame_rate_would_show(checkpoint: Folder, oracle: Reference) -> None:
    """The negative control of the test above: positions in time come from it."""
    answer = oracle("plain").answer([("user", [Video(CLIP, 2.0)])], 6, 8)
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", [("user", [Video(CLIP, 4.0)])], 6, 8))
    assert (said.ids, said.codes.tolist()) != (answer.ids, answer.codes.tolist())


@pytest.mark.parametrize("sabotage", ["no end of the text", "flat pictures", "the last token spoken"])
async def test_a_small_mistake_would_be_seen(
    sabotage: str, checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls of the comparison: each of these is wrong in one detail, and must not pass it."""
    turns = PROMPTS["media in several turns"]
    answer = oracle("plain").answer(turns, 4, 12)

    def flat(_self: Any, ids: Any, _blocks: Any) -> np.ndarray:
        return np.tile(np.arange(len(ids), dtype=np.float32), (3, 1))

    match sabotage:
        case "no end of the text":
            monkeypatch.setattr(Talker, "end_text", lambda self, req: self.source.config.tts_pad_token_id)
        case "flat pictures":
            monkeypatch.setattr(RopePositions, "__call__", flat)
        case _:
            word = AnswerWriter._word
            monkeypatch.setattr(AnswerWriter, "_word", lambda self, req, id, spoken: word(self, req, id, True))
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", turns, tokens=4))
    assert (said.ids, said.codes.tolist()) != (answer.ids, answer.codes.tolist())


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_long_answer_stays_with_the_reference(checkpoint: Folder, oracle: Reference) -> None:
    reference = oracle("deep")
    turns = PROMPTS["audio and image"]
    answer = reference.answer(turns, 40, 160)
    async with Engine(spec(checkpoint("deep"))) as engine:
        said = await ask(engine, request("long", turns, 40, 160))
    tokens, codes, farthest = compare(said, answer, reference.sound(said.codes))
    print(f"long: {tokens} tokens and {codes} codes are the reference's, the sound within {farthest:.1e}")
    assert len(said.codes) == 160
    close = {kind: len(set(steps)) for kind, steps in answer.thoughts.close_calls().items()}
    assert close["text"] + close["codes"] <= 0.001 * (len(answer.ids) + len(answer.codes)), close
