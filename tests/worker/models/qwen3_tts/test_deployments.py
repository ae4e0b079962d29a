"""The family through the whole engine: as a voice alone, behind a thinker, and where a replica is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, Request, RequestError, Sampling, StageSpec, WorkerSpec, load_config
from engine.chunk import Audio, Codes, Text
from engine.config import ChunkSpec, HeartbeatSpec
from engine.core import IN_WRITING
from tests.oracles.qwen3_tts import BASE, BIG, TEXT, WORDS, Case
from tests.oracles.tiny_qwen3_tts import Sizes

Folder = Callable[[Sizes], Path]
CONFIGS = Path(__file__).parents[4] / "configs"
CLONED = Case("cloned", BASE, "anna", words=WORDS)
FRAMES, LOST_AFTER = 70, 60
PACE = HeartbeatSpec(interval_s=1.0, timeout_s=60.0)


def told(**fields: Any) -> Request:
    given: dict[str, Any] = {
        "id": "t", "session": "s", "dump": True, "say": TEXT, "messages": (), "sampling": Sampling(seed=3),
        "max_audio_s": 0.08 * FRAMES,
    }  # fmt: skip
    return Request(**(given | fields))


async def said(engine: Engine, request: Request, lost: str = "") -> tuple[list[list[int]], np.ndarray, str]:
    """Codes, sound and text of an answer, in which a replica is lost when most of it has been given."""
    codes, waves, text = list[list[int]](), list[np.ndarray](), ""
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Codes):
                codes += chunk.frames.tolist()
            elif isinstance(chunk, Text):
                text += chunk.text
            elif isinstance(chunk, Audio):
                waves.append(chunk.wave)
                if lost and len(codes) >= LOST_AFTER:
                    pool, lost = engine._fleet.pools[lost], ""
                    next(member for member in pool.members() if member.leases).replica.host.fence()
    assert not lost
    return codes, np.concatenate([np.zeros(0, np.float32), *waves]), text


async def test_a_voice_alone_speaks_a_given_text_and_answers_nothing(checkpoint: Folder) -> None:
    spec = replace(load_config(CONFIGS / "qwen3_tts_tiny.yaml"), weights=str(checkpoint(BIG)), launcher="inline")
    async with Engine(spec) as engine:
        assert engine.model.voice_ids == ("vivian", "ryan", "eric")
        assert engine.model.languages == ("zh", "en", "de")
        codes, wave, _ = await said(engine, told(max_audio_s=0.5))
        assert len(wave) == 1920 * len(codes) > 0
        with pytest.raises(RequestError, match="is a voice: it speaks a given text, and answers nothing"):
            await said(engine, told(say=None, wants=IN_WRITING))


async def test_behind_a_thinker_it_says_what_that_writes(checkpoint: Folder) -> None:
    voice: dict[str, Any] = {"weights": str(checkpoint(BIG)), "options": {"context": 512}}
    stages = (
        StageSpec(use="script.thinker", name="thinker"), StageSpec(use="qwen3_tts.talker", name="talker", **voice),
        StageSpec(use="qwen3_tts.code2wav", name="code2wav", **voice),
    )  # fmt: skip
    async with Engine(EngineSpec(stages=stages, launcher="inline", heartbeat=PACE)) as engine:
        codes, wave, text = await said(engine, told(max_audio_s=0.8))
    assert text == TEXT
    assert len(wave) == 1920 * len(codes) > 0


@pytest.mark.parametrize("lost", ["talker", "code2wav", "both"])
async def test_where_a_replica_is_lost_the_answer_goes_on(checkpoint: Folder, recording: Path, lost: str) -> None:
    """Of a voice that is imitated: its recording stands before the rest as it stood before the beginning."""
    places = [("talker", "code2wav")] if lost == "both" else [("talker",), ("code2wav",)]
    workers = tuple(WorkerSpec(stages=stages, replicas=2) for stages in places)
    spec = EngineSpec(
        model="qwen3_tts", workers=workers, weights=str(checkpoint(BASE)), launcher="inline", heartbeat=PACE,
        chunks=ChunkSpec(first=1, growth=1.5, steady=4), options={"context": 512, **CLONED.ours(recording)},
    )  # fmt: skip
    async with Engine(spec) as engine:
        full, again = await said(engine, told()), await said(engine, told(), "talker" if lost == "both" else lost)
    assert len(full[0]) == FRAMES
    assert again[0] == full[0]
    np.testing.assert_allclose(again[1], full[1], rtol=0, atol=1e-4)
