"""A turn that is still being spoken is prefilled as it comes, and says what the whole would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from app.media.audio import decode_audio
from engine import AudioPart, Engine, Message, TokenIds, WeightsError, WorkerSpec
from engine.chunk import Chunk, Speech
from engine.core import Pcm
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.models.qwen3_omni.speakable import UserTurns
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.nn.slots import Batch
from engine.worker.omni.prompter import Prompter
from engine.worker.omni.sound import MelFrontend, StreamingMel
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import lose, until
from tests.engine.worker.models.qwen3_omni.cases import SYSTEM, TONE, Folder, noted_logits
from tests.engine.worker.models.qwen3_omni.counted import Counted
from tests.oracles.qwen3_omni import Turn
from tests.oracles.talk import Said, ask, request, spec

SPOKEN = Path(__file__).parents[4] / "data" / "spoken"
ROWS = 13  # of a second
BEHIND = 6  # the sound's end, the turn's end, a line's end; and those of the assistant's beginning


def talking(seconds: float) -> Pcm:
    """People, one after the other."""
    pcm = np.resize(people(), int(seconds * 16_000)).astype(np.float32)
    return (pcm * 8000 / np.abs(pcm).max()).astype(np.int16)


@cache
def people() -> Pcm:
    return np.concatenate([decode_audio(file.read_bytes(), 30) for file in sorted(SPOKEN.glob("in_00*.ogg"))])


def speech(seconds: float) -> Pcm:
    """The same after a loud beep: nothing that follows is louder."""
    pcm = talking(seconds)
    pcm[:3200] = 25_000 * np.sin(np.arange(3200) / 16_000 * 2 * np.pi * 300)
    return pcm


def rising(seconds: float) -> Pcm:
    """The same, ever louder: by 30 dB from the beginning to the end."""
    pcm = talking(seconds)
    return (pcm * np.geomspace(0.03, 1, len(pcm))).astype(np.int16)


async def blocks(pcm: Pcm, heard: Callable[[], bool] = lambda: True) -> AsyncIterator[Chunk]:
    """A microphone's blocks; the turn ends once ``heard`` holds."""
    for at in range(0, len(pcm), 512):
        yield Speech(pcm[at : at + 512])
    await until(heard)


async def test_live_speech_is_heard_as_a_clip(checkpoint: Folder) -> None:
    turns: list[Turn] = [SYSTEM, ("user", [TONE])]
    async with Engine(spec(checkpoint("plain"))) as engine:
        clip = await ask(engine, request("clip", turns))
        live = await ask(engine, request("live", [SYSTEM], live=True), blocks(TONE))
    assert (live.prompt, live.ids, live.codes.tolist()) == (clip.prompt, clip.ids, clip.codes.tolist())


@pytest.mark.parametrize("window_s", [1, 2, None])
async def test_speech_of_many_windows_is_heard_as_a_clip(window_s: float | None, checkpoint: Folder) -> None:
    pcm = speech(17.3)
    turns: list[Turn] = [SYSTEM, ("user", ["Listen:", pcm])]
    async with Engine(spec(checkpoint("plain"), window_s=window_s)) as engine:
        clip = await ask(engine, request("clip", turns))
        live = await ask(engine, request("live", [SYSTEM, ("user", ["Listen:"])], live=True), blocks(pcm))
    assert (live.prompt, live.ids, live.codes.tolist()) == (clip.prompt, clip.ids, clip.codes.tolist())


async def left_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch, pcm: Pcm, live: bool) -> tuple[int, int, Said]:
    """Rows that are computed once the user is silent, of the thinker and of all; all that could be done before was."""
    counted = Counted(monkeypatch)
    async with Engine(spec(folder, window_s=1)) as engine:
        if not live:
            said = await ask(engine, request("late", [SYSTEM, ("user", [pcm])], tokens=1))
            return counted.thought, counted.rows, said
        prompter = counted.stages[0].prompter
        begun = prompter.prompt(prompter.draft(request("d", [SYSTEM], live=True)), whole=False)
        before = len(begun.ids) + len(begun.talker.indices) + 2 * ROWS * (len(pcm) // 16_000)  # of thinker and talker

        def heard() -> bool:
            if done := counted.rows >= before:
                counted.thought, _ = 0, counted.taken()
            return done

        said = await ask(engine, request("live", [SYSTEM], tokens=1, live=True), blocks(pcm, heard))
        return counted.thought, counted.rows, said


async def test_when_the_user_stops_only_the_open_window_is_left(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    thought, rows, said = await left_at_the_end(checkpoint("plain"), monkeypatch, speech(9.4), live=True)
    assert thought == 5 + BEHIND, "0.4 s of sound"
    assert rows <= 2 * thought, "the talker hears no more than that either"
    assert len(said.prompt) > 9 * ROWS + thought


async def test_what_is_not_done_while_he_speaks_is_all_left_for_then(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above: the turn comes when it is over."""
    thought, rows, said = await left_at_the_end(checkpoint("plain"), monkeypatch, speech(9.4), live=False)
    assert thought == len(said.prompt)
    assert rows > thought + 9 * ROWS


async def test_who_goes_on_after_a_pause_is_heard_anew_but_not_computed_anew(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    pcm = speech(6.5)
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
        guessed = await ask(engine, request("guess", [SYSTEM], 3, 3, live=True, session="s"), blocks(pcm[:72_000]))
        counted.thought = 0
        went_on = await ask(engine, request("all", [SYSTEM], 1, 3, live=True, session="s"), blocks(pcm))
        cost = counted.thought
        alone = await ask(engine, request("alone", [SYSTEM], 1, 3, live=True), blocks(pcm))
    assert guessed.ids
    assert (went_on.prompt, went_on.ids) == (alone.prompt, alone.ids)
    kept = len(went_on.prompt) - cost
    assert kept >= 4 * ROWS, "four whole seconds were known"
    assert cost <= 3 * ROWS + BEHIND


async def test_the_turn_after_a_spoken_one_takes_over_what_was_heard(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    pcm = speech(3.3)
    async with Engine(spec(checkpoint("plain"))) as engine:
        first = await ask(engine, request("one", [SYSTEM], 4, 3, live=True, session="s"), blocks(pcm))
        counted.thought = counted.encoded = 0
        said = (
            Message("user", (AudioPart(pcm),)),
            Message("assistant", (), token_ids=TokenIds(engine.model.tokenizer, (300, 7))),
        )
        turns = request("two", [SYSTEM], 1, 3, session="s")
        asked = request("?", [("user", ["And?"])]).messages
        second = await ask(engine, replace_messages(turns, (*turns.messages, *said, *asked)))
    assert counted.encoded == 0
    assert counted.thought < len(second.prompt) - len(first.prompt) + 2


def replace_messages(asked: Any, messages: tuple[Message, ...]) -> Any:
    return type(asked)(**{name: getattr(asked, name) for name in asked.__struct_fields__} | {"messages": messages})


async def well_and_bereft(folder: Path, counted: Counted, live: bool) -> list[Said]:
    """An answer of a session whose thinker lives, and of one whose thinker is lost while it reads the prompt."""
    pcm = speech(2.5)
    turns: list[Turn] = [SYSTEM, ("user", ["Tell me.", pcm]), ("assistant", [300, 7]), ("user", ["And now? " * 20])]

    async def answer(engine: Engine, lost: bool) -> Said:
        await ask(engine, request("before", turns[:2], 3, 3, session="s"))  # what one of the thinkers knows
        gone = asyncio.Event()
        counted.thought = 0

        async def accident() -> None:
            await until(lambda: counted.thought >= 24)
            assert lose(engine, "thinker")
            gone.set()

        async with asyncio.TaskGroup() as group:
            if lost:
                group.create_task(accident())
            heard = blocks(pcm, gone.is_set if lost else lambda: True) if live else None
            return await ask(engine, request("t", turns, 8, 12, session="s", live=live), heard)

    whole = spec(folder, piece=8, window_s=1)
    parts = ("thinker",), ("talker", "code2wav")
    workers = tuple(WorkerSpec(stages=stages, replicas=2 - i, max_batch=4) for i, stages in enumerate(parts))
    found: list[Said] = []
    for lost in (False, True):
        async with Engine(replace(whole, workers=workers, empty_s=0.05)) as engine:
            found.append(await answer(engine, lost))
    return found


@pytest.mark.parametrize("live", [False, True])
async def test_a_lost_thinker_tells_the_talker_nothing_twice(
    live: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How the prompt was cut into pieces is a matter of time, and of what its replica knew: another cuts elsewhere."""
    well, bereft = await well_and_bereft(checkpoint("plain"), Counted(monkeypatch), live)
    assert well.ids == bereft.ids
    assert well.codes.tolist() == bereft.codes.tolist()


async def test_a_talker_that_takes_everything_for_new_says_something_else(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    hear = Talker._hear

    def anew(self: Talker, req: StageRequest, batch: Batch, user: UserTurns) -> int:
        return hear(self, req, batch, structs.replace(user, at=len(req.state.names)))

    monkeypatch.setattr(Talker, "_hear", anew)
    well, bereft = await well_and_bereft(checkpoint("plain"), Counted(monkeypatch), False)
    assert well.codes.tolist() != bereft.codes.tolist()


# How far a growing sound is from a whole one


def frontend(folder: Path, window_s: float | None) -> MelFrontend:
    return Prompter(Qwen3OmniSource(StageConfig(folder, options={"window_s": window_s}))).media_processor.frontend


@pytest.mark.parametrize("window_s", [1, 4, None])
@pytest.mark.parametrize("cut", [512, 7777, 200_000])
def test_a_growing_sounds_features_are_the_whole_ones(window_s: float | None, cut: int, checkpoint: Folder) -> None:
    pcm, listener = speech(19.7), frontend(checkpoint("plain"), window_s)
    growing = StreamingMel(listener)
    for at in range(0, len(pcm), cut):
        if growing.push(pcm[at : at + cut]):
            growing.windows()
    for one, other in zip(growing.whole(120), listener.whole(pcm, 120), strict=True):
        assert (one.name, one.num_positions) == (other.name, other.num_positions)
        assert one.mel is not None
        assert other.mel is not None
        assert one.mel.shape == other.mel.shape
        assert (one.mel - other.mel).abs().max() <= 1e-5


def test_of_a_sound_that_grows_louder_only_what_is_nearly_silent_differs(checkpoint: Folder) -> None:
    """The negative control of the test above: what is 80 dB below the loudest is cut off, and that comes last."""
    pcm, listener = rising(19.7), frontend(checkpoint("plain"), 1)
    growing = StreamingMel(listener)
    growing.push(pcm)
    apart = 0
    for one, other in zip(growing.whole(), listener.whole(pcm), strict=True):
        assert one.mel is not None
        assert other.mel is not None
        differs = (one.mel - other.mel).abs() > 1e-5
        assert (other.mel[differs] - other.mel.min()).abs().max() < 1e-5 if differs.any() else True
        apart += int(differs.sum())
    assert apart > 0


@pytest.mark.parametrize("window_s", [0, 0.5, 9, 16])
def test_windows_that_the_encoder_cannot_have_are_refused(window_s: float, checkpoint: Folder) -> None:
    with pytest.raises(WeightsError, match=r"options.window_s must be a multiple of 1 s"):
        frontend(checkpoint("plain"), window_s)


async def first_logits(
    folder: Path, pcm: Pcm, live: bool, window_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> tuple[torch.Tensor, list[int]]:
    with noted_logits(monkeypatch) as found:
        async with Engine(spec(folder, window_s=window_s)) as engine:
            turns: list[Turn] = [SYSTEM] if live else [SYSTEM, ("user", [pcm])]
            asked = request("r", turns, 6, 4, live=live)
            said = await ask(engine, asked, blocks(pcm) if live else None)
    return found[0], said.ids


@pytest.mark.parametrize("name", ["wide", "plain", "deep"])
async def test_windows_of_the_encoders_own_length_change_nothing(
    name: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pcm = speech(9.3)
    whole, ids = await first_logits(checkpoint(name), pcm, False, None, monkeypatch)
    live, others = await first_logits(checkpoint(name), pcm, True, 8, monkeypatch)
    assert float((live - whole).abs().max()) <= 1e-4
    assert others == ids


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_how_far_streamed_speech_is_from_whole_speech(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logits of the first token against those of the whole clip in the encoder's own windows, and the answers.

    The weights are random: what is far here need not be far with trained ones, whose encoder was taught windows of one
    to eight seconds (Qwen3-Omni technical report, arXiv 2509.17765, 2.2). What is zero here is zero there.
    """
    lines = ["checkpoint  sound    window   logits apart (their spread)  same answer"]
    for name in ("wide", "plain", "deep"):
        for sound in (speech, talking, rising) if name == "wide" else (speech,):
            pcm = sound(17.3)
            whole, ids = await first_logits(checkpoint(name), pcm, False, None, monkeypatch)
            for window_s in (8, 4, 2, 1):
                live, others = await first_logits(checkpoint(name), pcm, True, window_s, monkeypatch)
                apart = float((live - whole).abs().max())
                same = sum(a == b for a, b in zip(ids, others, strict=False))
                lines.append(
                    f"{name:10}  {sound.__name__:7}  {window_s} s     {apart:.2g} ({float(whole.std()):.2f})"
                    f"            {same} of {len(ids)} tokens"
                )
                if sound is speech and window_s == 8:
                    assert apart <= 1e-4
                    assert others == ids
                await asyncio.sleep(0)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
