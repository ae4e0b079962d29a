"""A turn that is spoken and shown is prefilled as it comes, and says what the same turn whole would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from engine import Engine, Message, RequestError, VideoPart
from engine.chunk import Chunk, VideoFrame
from engine.core import MIC_RATE_HZ
from engine.worker.models.qwen2_5_omni.source import Qwen2_5OmniSource
from engine.worker.omni.film import CAMERA, StreamingFilm
from engine.worker.omni.prompter import Prompter
from engine.worker.stage import StageConfig
from tests.engine.worker.models.qwen2_5_omni.cases import SYSTEM, Folder, Reference, request, spec
from tests.engine.worker.models.qwen3_omni.counted import Counted
from tests.engine.worker.models.qwen3_omni.settled import Settled
from tests.engine.worker.models.qwen3_omni.test_film import EVENLY, FRAMES, answered, filmed, frames, shown
from tests.engine.worker.models.qwen3_omni.test_live import speech
from tests.oracles.qwen3_omni import Turn, Video
from tests.oracles.talk import ask

SECONDS = 4.5


def film(folder: Path) -> StreamingFilm:
    return Prompter(Qwen2_5OmniSource(StageConfig(folder))).media_processor.watch()


@pytest.mark.parametrize(
    "times_s", [EVENLY, [0.0, 1.2, 3.9], [1.3, 2.6]], ids=["evenly", "with holes", "a first second unseen"]
)
async def test_a_turn_prefilled_as_it_came_has_the_logits_of_the_whole(
    times_s: list[float], checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pcm, folder = speech(SECONDS), checkpoint("plain")
    whole, said = await answered(folder, monkeypatch, filmed(times_s, pcm), None, model="qwen2_5_omni")
    system, turn = request("_", [SYSTEM]).messages, Settled(monkeypatch).paced(shown(pcm, frames(times_s)))
    live, others = await answered(folder, monkeypatch, system, turn, model="qwen2_5_omni")
    assert float((live - whole).abs().max()) <= 1e-4
    assert int(live.argmax()) == int(whole.argmax())
    assert (others.prompt, others.ids, others.codes.tolist()) == (said.prompt, said.ids, said.codes.tolist())


async def test_the_reference_says_the_same(
    checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers, given the whole: frames at two a second with their sound (use_audio_in_video)."""
    pcm = speech(SECONDS)
    turns: list[Turn] = [SYSTEM, ("user", [Video(FRAMES, CAMERA.fps, pcm)])]
    reference = oracle("plain").answer(turns, 6, 20)
    turn = Settled(monkeypatch).paced(shown(pcm, frames(EVENLY)))
    system = request("_", [SYSTEM]).messages
    live, said = await answered(checkpoint("plain"), monkeypatch, system, turn, model="qwen2_5_omni")
    assert float((live - reference.thoughts.text[0]).abs().max()) <= 1e-4
    assert int(live.argmax()) == int(reference.thoughts.text[0].argmax())
    same = min(reference.thoughts.close_calls()["text"], default=len(reference.ids))
    assert said.ids[:same] == reference.ids[:same]


async def test_when_the_user_stops_only_the_sound_of_the_open_window_is_left(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, settled = Counted(monkeypatch), Settled(monkeypatch)
    pcm = speech(SECONDS)

    async def turn() -> AsyncIterator[Chunk]:
        async for chunk in settled.paced(shown(pcm, frames(EVENLY))):
            yield chunk
        counted.rows = counted.thought = counted.looked = 0

    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("live", [SYSTEM], 1, 3, live=True, camera=True), turn())
    window, open_s = settled.made[-1].blocks[-1], SECONDS - 4
    assert window.sounds == pytest.approx(25 * open_s, abs=1)
    assert counted.looked == 0
    assert window.sounds < counted.thought < window.sounds + 12
    assert counted.thought < 0.05 * len(said.prompt)


def test_a_frame_at_the_very_end_is_seen(checkpoint: Folder) -> None:
    """Where the sound behind it is too short for a row of its own."""
    turn, pcm = film(checkpoint("plain")), speech(2.015)
    turn.add_frame(VideoFrame(FRAMES[0], 0.0))
    turn.push(pcm[: int(2.013 * MIC_RATE_HZ)])
    assert [block.sounds > 0 for block in turn.windows()] == [True]
    turn.add_frame(VideoFrame(FRAMES[1], 2.0))
    turn.push(pcm[int(2.013 * MIC_RATE_HZ) :])
    prompter = Prompter(Qwen2_5OmniSource(StageConfig(checkpoint("plain"))))
    live = prompter.prompt(prompter.draft(request("_", [SYSTEM], live=True, camera=True)), turn.whole())
    asked = structs.replace(request("_", [SYSTEM]), messages=filmed([0.0, 2.0], pcm))
    whole = prompter.prompt(prompter.draft(asked))
    assert live.ids.tolist() == whole.ids.tolist()
    assert np.array_equal(live.positions, whole.positions)
    assert len(live.blocks[-1].pictures) == 1


async def test_a_video_cut_in_half_is_seen_as_far_as_it_goes(
    checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames without a sound for them, and a sound whose second half shows nothing."""
    pcm, folder = speech(SECONDS), checkpoint("plain")
    for count, sound in ((9, pcm[: len(pcm) // 2]), (4, pcm)):
        video = Video(FRAMES[:count], CAMERA.fps, sound)
        messages = request("_", [SYSTEM, ("user", [video])]).messages
        ours, said = await answered(folder, monkeypatch, messages, None, model="qwen2_5_omni")
        reference = oracle("plain").answer([SYSTEM, ("user", [video])], 6, 20)
        assert float((ours - reference.thoughts.text[0]).abs().max()) <= 1e-4
        assert said.ids


# Bad input


async def test_a_camera_that_changes_its_size_is_refused_and_the_next_turn_is_served(checkpoint: Folder) -> None:
    pcm = speech(1.0)
    turned = [VideoFrame(FRAMES[0], 0.0), VideoFrame(FRAMES[0].transpose(1, 0, 2), 0.5)]
    async with Engine(spec(checkpoint("plain"))) as engine:
        with pytest.raises(RequestError, match="use one size"):
            await ask(engine, request("bad", [SYSTEM], 2, 2, live=True, camera=True), shown(pcm, turned))
        dark = [VideoFrame(np.zeros_like(FRAMES[0]), 0.0)]
        black = await ask(engine, request("good", [SYSTEM], 2, 2, live=True, camera=True), shown(pcm, dark))
    assert black.ids


async def test_a_video_without_frames_is_refused(checkpoint: Folder) -> None:
    empty = Message("user", (VideoPart(FRAMES[:0], CAMERA.fps, speech(1.0)),))
    async with Engine(spec(checkpoint("plain"))) as engine:
        with pytest.raises(RequestError, match="cannot be seen"):
            await ask(engine, structs.replace(request("bad", [SYSTEM]), messages=(empty,)))
