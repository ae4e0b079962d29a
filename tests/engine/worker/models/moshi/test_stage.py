"""The duplex stage: frames of sound in, frames of sound and text out, prompts first, and errors of one session."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from engine import Duplex, Engine, EngineSpec, Message, Request, Speech, TextPart, WorkerSpec, describe
from engine.chunk import Audio, Chunk, Text
from engine.core import Sampling
from engine.errors import ContextOverflow, RequestError, StageFailed
from engine.worker.models.moshi.pieces import WordPieces
from engine.worker.models.moshi.prompt import PersonaVoice, prompt_of
from engine.worker.models.moshi.stage import MoshiDuplex
from engine.worker.nn.memory import plan
from engine.worker.pace import OneFrame
from engine.worker.process import duplex_capacity
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.worker.models.moshi.driven import alone, network, sound
from tests.engine.worker.models.moshi.test_prompts import SIZES as PROMPTED
from tests.engine.worker.models.moshi.test_prompts import held, voice_codes, write_voice
from tests.oracles.moshi import Oracle
from tests.oracles.tiny_moshi import Sizes

SIZES = Sizes(seed=9)


def stage_of(folder: Path, slots: int = 3, **options: Any) -> MoshiDuplex:
    return MoshiDuplex(StageConfig(folder, slots=slots, options=options))


def opened(stage: MoshiDuplex, slot: int = 0, text: str = "", **fields: Any) -> StageRequest:
    messages = (Message("system", (TextPart(text),)),) if text else ()
    request = Request(
        id=f"r{slot}", session="s", messages=messages, live=True, sampling=Sampling(greedy=True), **fields
    )
    req = StageRequest(request, slot, OneFrame(), info=stage.info)
    stage.open(req)
    return req


def spoken(stage: MoshiDuplex, req: StageRequest, frames: NDArray[np.float32]) -> list[Chunk]:
    """Step a session alone, through its prompt and these frames."""
    chunks: list[Chunk] = []
    while not req.needs_input:
        assert list(stage.step([req])) == [[]]
    for frame in frames:
        req.pending.append(frame)
        (found,) = stage.step([req])
        assert not isinstance(found, Exception)
        chunks += found
    return chunks


def waves(chunks: Sequence[Chunk]) -> NDArray[np.float32]:
    return np.concatenate([chunk.wave for chunk in chunks if isinstance(chunk, Audio)])


def test_frames_are_those_of_the_networks_and_text_has_its_place(checkpoint: Callable[[Sizes], Path]) -> None:
    heard, stage = sound(30), stage_of(checkpoint(SIZES))
    chunks = spoken(stage, opened(stage), heard)
    expected = alone(network(checkpoint(SIZES)), heard)
    np.testing.assert_allclose(waves(chunks), expected.wave.clip(-1, 1), rtol=0, atol=1e-5)
    texts = [chunk for chunk in chunks if isinstance(chunk, Text)]
    assert [chunk.token_ids for chunk in texts] == [(token,) for token in expected.texts if token > 3]
    said = "".join(chunk.text for chunk in texts)
    assert [chunk.start for chunk in texts] == [len(said[: chunk.start]) for chunk in texts]
    assert said.strip() == said.lstrip()
    assert stage.info.facets.duplex == Duplex()


def test_a_session_that_fails_ends_alone(checkpoint: Callable[[Sizes], Path]) -> None:
    stage = stage_of(checkpoint(SIZES))
    reqs = [opened(stage, slot) for slot in range(3)]
    for broken in (False, True):
        if broken:
            with torch.inference_mode():
                stage.net.lm.cache.keys[:, :, stage.net.lm.cache.begin(1)] = math.nan
        for req in reqs:
            req.pending.append(sound(1)[0])
        found = stage.step(reqs)
        assert [isinstance(one, StageFailed) for one in found] == [False, broken, False]


@pytest.mark.parametrize("voice", [None, "NATM1"])
def test_a_session_begins_with_its_voice_and_its_instructions(
    voice: str | None, checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle], tmp_path: Path
) -> None:
    for name, count in (("NATF0", 4), ("NATM1", 9)):
        write_voice(tmp_path / f"{name}.pt", oracle(PROMPTED), voice_codes(count))
    stage, heard = stage_of(checkpoint(PROMPTED), voices=str(tmp_path)), sound(6)
    assert [one.id for one in stage.info.facets.voices] == ["NATF0", "NATM1"]
    chunks = spoken(stage, opened(stage, 1, "word1 word2", voice=voice), heard)
    net = network(checkpoint(PROMPTED))
    text = stage._tokenizer.encode("<system> word1 word2 <system>").ids
    prompt = prompt_of(net.lm.sizes, PersonaVoice.read(tmp_path / f"{voice or 'NATF0'}.pt", net.lm.sizes), text)
    expected = held(net, prompt, heard, 50)
    np.testing.assert_allclose(waves(chunks), expected.wave.clip(-1, 1), rtol=0, atol=1e-5)


def test_what_a_session_may_not_ask_for_is_refused(
    checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle], tmp_path: Path
) -> None:
    write_voice(tmp_path / "NATF0.pt", oracle(PROMPTED), voice_codes(3))
    stage = stage_of(checkpoint(PROMPTED), voices=str(tmp_path), context=80)
    with pytest.raises(RequestError, match="There is no voice 'NATM9'"):
        opened(stage, voice="NATM9")
    with pytest.raises(ContextOverflow, match=r"take \d+ frames; they may take 40\. Shorten them"):
        opened(stage, text="word1 " * 40)


def test_memory_is_planned_without_reading_weights(checkpoint: Callable[[Sizes], Path]) -> None:
    stage = stage_of(checkpoint(SIZES))
    planned = plan(MoshiDuplex, StageConfig(checkpoint(SIZES), slots=3))
    lm = stage.net.lm
    depth, own = lm.depth.cache, lm.cache
    assert planned.caches >= own.keys.nbytes + own.values.nbytes + depth.keys.nbytes + depth.values.nbytes
    assert planned.weights > lm.code_tables.nbytes + lm.text_table.nbytes


def test_pieces_become_text() -> None:
    words = ["<unk>", "<s>", "</s>", "<pad>", "\u2581Hello", "\u2581w", "orld", "<0xC3>", "<0xA9>", "!"]
    piece = WordPieces(Tokenizer(models.Unigram([(word, -1.0) for word in words], 0, True)))
    said = [piece(token) for token in (3, 0, 4, 3, 5, 6, 7, 8, 7, 9, -2, 99)]
    assert said == ["", "", "Hello", "", " w", "orld", "", "é", "", "\ufffd!", "", ""]


def deployed(folder: Path) -> EngineSpec:
    workers = (WorkerSpec(stages=("duplex",), max_batch=2),)
    return EngineSpec(model="moshi", workers=workers, weights=str(folder), launcher="inline")


async def test_an_engine_holds_a_session(checkpoint: Callable[[Sizes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplex_capacity, "_step_s", lambda stage, duplex, size, clock: 0.001)
    spec = deployed(checkpoint(SIZES))
    assert describe(spec).duplex == Duplex()

    async def microphone() -> AsyncGenerator[Chunk]:
        yield Speech(np.zeros(1920 * 5, np.int16))

    request = Request(id="a", session="a", messages=(), live=True, max_audio_s=math.inf)
    async with Engine(spec) as engine, engine.open(request, microphone()) as chunks:
        found = [chunk async for chunk in chunks]
    assert {len(chunk.wave) for chunk in found if isinstance(chunk, Audio)} == {1920}
