"""Answers that end early, and requests that cannot be served: each with one true sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import Engine, RequestError, describe
from engine.deployment.config import ChunkSpec
from tests.engine.worker.models.qwen2_5_omni.cases import CLIP, PROMPTS, SYSTEM, Folder, request, spec
from tests.oracles.qwen3_omni import Turn, Video
from tests.oracles.talk import ask

REFUSED: dict[str, tuple[list[Turn], dict[str, Any], str]] = {
    "an unknown voice": (PROMPTS["text"], {"voice": "nobody"}, "voice: 'nobody' is not one of chelsie, ethan"),
    "a video without frames": ([("user", [Video(CLIP[:0], 2.0)])], {}, "cannot be seen"),
    "a sound without a row": ([("user", [np.zeros(400, np.int16)])], {}, "must be 0.03 to 300 s long"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_be_served_is_refused_in_a_sentence(what: str, checkpoint: Folder) -> None:
    turns, more, reason = REFUSED[what]
    async with Engine(spec(checkpoint("plain"))) as engine:
        with pytest.raises(RequestError, match=reason):
            await ask(engine, request("bad", turns, **more))
        assert (await ask(engine, request("good", PROMPTS["text"], 3, 5))).ids, "the next one is served"


@pytest.mark.seed("A2.11", "A2.12")
async def test_a_reply_of_one_token_has_no_sound_and_one_of_two_speaks_its_first(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        one = await ask(engine, request("one", PROMPTS["text"], 1, 20))
        two = await ask(engine, request("two", PROMPTS["text"], 2, 20))
    assert (len(one.ids), len(one.codes), len(one.wave), one.finish) == (1, 0, 0, "length")
    assert (len(two.ids), len(two.wave)) == (2, 480 * len(two.codes))
    assert len(two.codes) > 0


async def test_a_text_is_said_as_it_stands(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("say", [SYSTEM], 20, 20, say="Hello there."))
    assert said.text == "Hello there."
    assert len(said.wave) == 480 * len(said.codes) > 0


@pytest.mark.parametrize("graphs", ["off", "on"])
async def test_static_steps_and_the_next_turn_say_the_same(graphs: str, checkpoint: Folder) -> None:
    """A session's next turn takes over what was computed, for the thinker and the talker."""
    turns = PROMPTS["media in several turns"]
    async with Engine(spec(checkpoint("plain"), graphs=graphs)) as engine:
        await ask(engine, request("session", turns[:2], 4, 20))
        later = await ask(engine, request("session", turns, 6, 30))
    async with Engine(spec(checkpoint("plain"))) as engine:
        alone = await ask(engine, request("alone", turns, 6, 30))
    assert (later.ids, later.codes.tolist()) == (alone.ids, alone.codes.tolist())
    assert np.abs(later.wave - alone.wave).max() <= 1e-3


def test_chunks_that_are_set_have_no_effect_and_that_is_told(checkpoint: Folder) -> None:
    chunked = spec(checkpoint("plain"))
    assert "code2wav cuts its audio by its own rule" in " ".join(describe(chunked).notes)
    assert describe(replace(chunked, chunks=ChunkSpec())).notes == ()


async def test_bfloat16_speaks(checkpoint: Folder) -> None:
    half = spec(checkpoint("plain"))
    half = replace(half, workers=tuple(replace(worker, dtype="bfloat16") for worker in half.workers))
    async with Engine(half) as engine:
        said = await ask(engine, request("half", PROMPTS["audio and image"], 6, 20))
    assert len(said.ids) == 6
    assert len(said.wave) == 480 * len(said.codes) > 0
