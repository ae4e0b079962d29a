"""A recorded conversation with a real language model has the same words when it is replayed."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from app.bench.target import spoken
from app.recording.comparison import conversation_differences, events_of
from app.recording.file import read
from app.recording.replay import replay
from engine import EngineSpec, StageSpec, WorkerSpec
from tests.app.recording.recorded import only
from tests.app.rig import running, silence, talking

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

QUESTION = Path(__file__).parents[1] / "data" / "spoken" / "in_000.ogg"
PIECE = 480


def spec(weights: Path, recordings: Path) -> EngineSpec:
    """Nano's ears and voice, and a language model in one thread that draws its words with the recorded seeds."""
    options = {"context": 1024, "threads": 1, "temperature": 0.7}
    stages = (
        StageSpec(use="nano.ears", name="ears"),
        StageSpec(use="llm.llamacpp", name="thinker", weights=str(weights), options=options),
        StageSpec(use="nano.talker", name="talker"),
        StageSpec(use="nano.code2wav", name="code2wav"),
    )
    worker = WorkerSpec(stages=tuple(stage.name for stage in stages), max_batch=2)
    made = EngineSpec(stages=stages, workers=(worker,), launcher="inline")
    return dataclasses.replace(made, server={"recordings": str(recordings)})


async def test_a_replay_has_the_same_conversation(smollm2: Path, tmp_path: Path) -> None:
    async with running(spec(smollm2, tmp_path)) as server, talking(server, "?record=true") as client:
        await client.configure(audio={"input": {"transcription": {}}}, output_modalities=["audio"])
        await client.ask("Tell me a short story about a cat.", max_output_tokens=40)
        said = np.concatenate([spoken(QUESTION), silence(1.5)])
        for at in range(0, len(said), PIECE):
            await client.append(said[at : at + PIECE])
            await asyncio.sleep(0.02)
        await client.until("response.done")
        await client.ask("What did I ask before?", max_output_tokens=40)
    recorded = read(only(tmp_path))
    done = await asyncio.to_thread(replay, recorded)
    assert conversation_differences(events_of(recorded.server), done.events) == []
