"""How answers end: by their text, by their voice, by their limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Engine
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, Folder, Reference
from tests.engine.worker.models.qwen3_omni.variants import variant
from tests.oracles.qwen3_omni import Oracle
from tests.oracles.talk import ask, request, spec


@pytest.mark.seed("A4.15")
async def test_the_text_ends_and_the_voice_goes_on_with_padding(
    checkpoint: Folder, oracle: Reference, tmp_path: Path
) -> None:
    turns = PROMPTS["text"]
    end = oracle("plain").answer(turns, 8, 2).ids[4]
    folder = variant(checkpoint("plain"), tmp_path / "v", generation_config={"eos_token_id": [end]})
    answer = Oracle(folder, eos=[end]).answer(turns, 8, 12)
    async with Engine(spec(folder)) as engine:
        said = await ask(engine, request("t", turns))
    assert said.ids == answer.ids[:-1]
    assert said.finish == "length", "the frames were cut"
    assert said.codes.tolist() == answer.codes.tolist()


@pytest.mark.seed("A4.9")
async def test_the_talker_stops_by_itself(checkpoint: Folder, oracle: Reference, tmp_path: Path) -> None:
    turns = PROMPTS["text"]
    codes = oracle("plain").answer(turns, 8, 12).codes[:, 0].tolist()
    end = next(code for i, code in enumerate(codes) if i > 4 and code not in codes[:i])
    folder = variant(checkpoint("plain"), tmp_path / "v", config={"talker_config.codec_eos_token_id": end})
    async with Engine(spec(folder)) as engine:
        said = await ask(engine, request("t", turns, frames=50))
    assert said.codes[:, 0].tolist() == codes[: codes.index(end)]
    assert said.order.count("usage") == 1
    assert said.finish == "length", "the eighth token was the last that was allowed"


@pytest.mark.seed("A2.14")
async def test_a_reply_of_one_token_has_no_sound(checkpoint: Folder, oracle: Reference, tmp_path: Path) -> None:
    turns = PROMPTS["text"]
    end = oracle("plain").answer(turns, 2, 2).ids[0]
    folder = variant(checkpoint("plain"), tmp_path / "v", generation_config={"eos_token_id": end})
    async with Engine(spec(folder)) as engine:
        said = await ask(engine, request("t", turns))
        capped = await ask(engine, request("u", turns, tokens=1))
    assert (said.ids, said.order, said.finish) == ([], ["usage"], "stop")
    assert capped.order == ["usage"]


async def test_too_many_frames_are_cut_and_said_so(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", PROMPTS["text"], tokens=30, frames=3))
    assert len(said.codes) == 3
    assert len(said.ids) == 30, "the text is whole"
    assert said.finish == "length"


async def test_the_assistants_own_words_are_spoken_as_they_stand(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", [], say="Hello there, how are you?"))
    assert said.text == "Hello there, how are you?"
    assert len(said.codes) == 12
