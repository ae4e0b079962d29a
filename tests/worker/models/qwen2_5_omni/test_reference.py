"""Qwen2.5-Omni through the whole engine: token for token, code for code as the reference; its sound from our noise."""

from __future__ import annotations

import pytest

from engine import Engine
from tests.oracles.talk import ask
from tests.worker.models.qwen2_5_omni.cases import PROMPTS, Folder, Reference, compare, request, spec
from tests.worker.models.qwen2_5_omni.conftest import SIZES


async def _compared(name: str, titles: list[str], checkpoint: Folder, oracle: Reference) -> None:
    reference, codes = oracle(name), 0
    async with Engine(spec(checkpoint(name), piece=40)) as engine:
        for title in titles:
            said = await ask(engine, request(title, PROMPTS[title]))
            answer = reference.answer(PROMPTS[title], 8, 60)
            assert said.prompt == reference.inputs(PROMPTS[title])["input_ids"][0].tolist(), title
            compare(said, answer)
            codes += len(said.codes)
            assert len(said.wave) == 480 * len(said.codes), title
    assert codes >= 30 * len(titles), "a random checkpoint may stop early, but not always"


@pytest.mark.parametrize("title", PROMPTS)
async def test_the_engine_says_what_the_reference_says(title: str, checkpoint: Folder, oracle: Reference) -> None:
    await _compared("plain", [title], checkpoint, oracle)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SIZES)
async def test_so_does_every_checkpoint(name: str, checkpoint: Folder, oracle: Reference) -> None:
    await _compared(name, list(PROMPTS), checkpoint, oracle)
