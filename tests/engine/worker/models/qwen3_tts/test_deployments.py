"""The family through the whole engine: as a voice alone, behind a thinker, and where a replica is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, Request, RequestError, Sampling, StageSpec, WorkerSpec, load_config
from engine.chunk import Audio, Codes, Text, Usage
from engine.core import IN_WRITING
from engine.deployment.config import ChunkSpec, HeartbeatSpec
from engine.worker.models.qwen3_tts.talker import Talker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker import stage
from tests.engine.worker.models.test_contracts import another_choice
from tests.oracles.qwen3_tts import BASE, BIG, SMALL, TEXT, WORDS, Case
from tests.oracles.tiny_qwen3_tts import Sizes

Folder = Callable[[Sizes], Path]
CONFIGS = Path(__file__).parents[5] / "configs"
CLONED = Case("cloned", BASE, "anna", words=WORDS)
FRAMES, LOST_AFTER = 48, 40
PACE = HeartbeatSpec(interval_s=1.0, timeout_s=60.0)


def told(**fields: Any) -> Request:
    given: dict[str, Any] = {
        "id": "t", "session": "s", "dump": True, "say": TEXT, "messages": (), "sampling": Sampling(seed=1),
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
        with pytest.raises(RequestError, match="is only a voice: it can speak a given text, but not answer"):
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


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_in_processes_of_their_own_its_stages_say_the_same(checkpoint: Folder, recording: Path) -> None:
    """Frames of the recording cross from one to the other, and those of the answer."""
    here = lossy(checkpoint(BASE), recording, apart=True)
    found = list[tuple[list[list[int]], np.ndarray, str]]()
    for launcher in ("inline", "local"):
        workers = tuple(replace(one, replicas=1) for one in here.workers)
        async with Engine(replace(here, workers=workers, launcher=launcher)) as engine:
            found.append(await said(engine, told(max_audio_s=0.8)))
    assert len(found[0][0]) == 10
    assert found[1][0] == found[0][0]
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=0, atol=1e-4)


def lossy(folder: Path, recording: Path, apart: bool, dtype: str = "float32") -> EngineSpec:
    """Two replicas of each stage, of a voice that is cloned."""
    places = [("talker",), ("code2wav",)] if apart else [("talker", "code2wav")]
    return EngineSpec(
        model="qwen3_tts", workers=tuple(WorkerSpec(stages=stages, replicas=2, dtype=dtype) for stages in places),
        weights=str(folder), launcher="inline", heartbeat=PACE, chunks=ChunkSpec(first=1, growth=1.5, steady=4),
        options={"context": 512, **CLONED.ours(recording)},
    )  # fmt: skip


@pytest.mark.parametrize("lost", ["talker", "code2wav", "both"])
async def test_where_a_replica_is_lost_the_answer_goes_on(checkpoint: Folder, recording: Path, lost: str) -> None:
    """Of a voice that is imitated: its recording stands before the rest as it stood before the beginning."""
    async with Engine(lossy(checkpoint(BASE), recording, apart=lost != "both")) as engine:
        full, again = await said(engine, told()), await said(engine, told(), "talker" if lost == "both" else lost)
    assert len(full[0]) == FRAMES
    assert again[0] == full[0]
    np.testing.assert_allclose(again[1], full[1], rtol=0, atol=1e-4)


@pytest.mark.seed("A4.16")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("kept", [True, False])
async def test_in_bfloat16_the_talker_goes_on_behind_the_frames_that_were_given(
    checkpoint: Folder, recording: Path, kept: bool, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its successor would draw others; where it drew some of them again, it would speak on behind those."""
    spoken = another_choice(Talker, monkeypatch)
    if not kept:
        before = stage.spoken_before
        monkeypatch.setattr(stage, "spoken_before", lambda req, groups: before(req, groups)[:-10])
    async with Engine(lossy(checkpoint(BASE), recording, apart, "bfloat16")) as engine:
        codes, wave, _ = await said(engine, told(), "talker")
    assert len(spoken) == 2, "one talker was lost, and one went on"
    assert (spoken[1].tolist() == codes) == kept
    assert len(wave) == 1920 * len(codes)


@pytest.mark.parametrize(("frames", "finish"), [(20, "stop"), (40, "length")])
async def test_an_answer_for_which_there_is_no_more_room_says_so(
    checkpoint: Folder, frames: int, finish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of so many frames, where has room for some 30 of them."""
    framed, prefill = Talker._frame, Talker.prefill

    def ending(self: Talker, req: StageRequest, drawn: np.ndarray) -> Any:
        drawn[0] = self.net.shape.end if req.state.frames == frames else 1
        return framed(self, req, drawn)

    def narrow(self: Talker, req: StageRequest, batch: Any) -> int:
        self.net.room = 40
        return prefill(self, req, batch)

    monkeypatch.setattr(Talker, "_frame", ending)
    monkeypatch.setattr(Talker, "prefill", narrow)
    spec = replace(load_config(CONFIGS / "qwen3_tts_tiny.yaml"), weights=str(checkpoint(SMALL)), launcher="inline")
    async with Engine(replace(spec, heartbeat=PACE)) as engine, engine.open(told()) as chunks:
        found = [chunk async for chunk in chunks]
    count = sum(len(chunk.frames) for chunk in found if isinstance(chunk, Codes))
    assert count == frames if finish == "stop" else 25 < count < 40
    last = [chunk for chunk in found if isinstance(chunk, Usage)][-1]
    assert (last.finish, last.output_tokens) == (finish, len(TEXT.split()))


def test_it_goes_on_behind_what_was_given_where_it_is_on_no_processor(checkpoint: Folder) -> None:
    """Also in float32; ``meta`` stands for a device here."""
    config = StageConfig(weights=checkpoint(SMALL))
    assert [Talker.describe(replace(config, device=one)).replay for one in ("cpu", "meta")] == ["exact", "continue"]
