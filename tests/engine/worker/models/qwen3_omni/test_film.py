"""A turn that is spoken and shown is prefilled as it comes, and says what the same turn whole would."""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from engine import Engine, Message, RequestError, VideoPart, WorkerSpec
from engine.chunk import Chunk, Speech, VideoFrame
from engine.core import MIC_RATE_HZ, Pcm
from engine.worker.loop.prefix import Prefixes
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.omni.film import CAMERA, StreamingFilm
from engine.worker.omni.prompter import Prompter
from engine.worker.stage import StageConfig
from tests.engine.fakes import lose, until
from tests.engine.worker.models.qwen3_omni.behind_commit import pairs_ms
from tests.engine.worker.models.qwen3_omni.cases import SYSTEM, Folder, Reference, noted_logits
from tests.engine.worker.models.qwen3_omni.counted import Counted
from tests.engine.worker.models.qwen3_omni.settled import Settled
from tests.engine.worker.models.qwen3_omni.test_live import BEHIND, blocks, speech
from tests.oracles.qwen3_omni import Turn, Video
from tests.oracles.talk import Said, ask, request, spec

RNG = np.random.default_rng(11)
SECONDS = 4.5
ROWS = 788  # of the prompt with what is said and shown in that time
OPEN = 7  # rows of the last half second's sound
ENDS = BEHIND + 1  # and the end of what is shown
FRAMES = RNG.integers(0, 255, (9, 60, 90, 3), dtype=np.uint8)  # half a second each


def frames(times_s: list[float]) -> list[VideoFrame]:
    return [VideoFrame(FRAMES[i], at_s) for i, at_s in enumerate(times_s)]


EVENLY = [i / CAMERA.fps for i in range(len(FRAMES))]


async def shown(pcm: Pcm, seen: list[VideoFrame], over: Callable[[], bool] = lambda: True) -> AsyncIterator[Chunk]:
    """A microphone's blocks, and among them frames at their times."""
    left = list(seen)
    for at in range(0, len(pcm), 512):
        while left and left[0].at_s * MIC_RATE_HZ <= at:
            yield left.pop(0)
        yield Speech(pcm[at : at + 512])
    for frame in left:
        yield frame
    await until(over, 50_000)


def filmed(times_s: list[float], pcm: Pcm) -> tuple[Message, ...]:
    film = VideoPart(FRAMES[: len(times_s)], CAMERA.fps, pcm, tuple(times_s))
    return (*request("_", [SYSTEM]).messages, Message("user", (film,)))


async def answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, messages: tuple[Message, ...], inputs: Any, **options: Any
) -> tuple[torch.Tensor, Said]:
    """The logits of the first token, and all that was said."""
    with noted_logits(monkeypatch) as found:
        async with Engine(spec(folder, **options)) as engine:
            live = inputs is not None
            asked = request("r", [SYSTEM], 6, 4, live=live, camera=live)
            said = await ask(engine, structs.replace(asked, messages=messages), inputs)
    return found[0], said


@pytest.mark.parametrize(
    ("times_s", "window_s"),
    [(EVENLY, 1), (EVENLY, None), ([0.0, 1.2, 3.9], 1), ([2.6], 2)],
    ids=["evenly", "in the encoder's own windows", "with holes", "late"],
)
async def test_a_turn_prefilled_as_it_came_has_the_logits_of_the_whole(
    times_s: list[float], window_s: float | None, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each picture is taken in with its first frame, and again with its second."""
    pcm, folder = speech(SECONDS), checkpoint("plain")
    whole, said = await answered(folder, monkeypatch, filmed(times_s, pcm), None, window_s=window_s)
    system, turn = request("_", [SYSTEM]).messages, Settled(monkeypatch).paced(shown(pcm, frames(times_s)))
    live, others = await answered(folder, monkeypatch, system, turn, window_s=window_s)
    assert float((live - whole).abs().max()) <= 1e-4
    assert int(live.argmax()) == int(whole.argmax())
    assert (others.prompt, others.ids, others.codes.tolist()) == (said.prompt, said.ids, said.codes.tolist())


async def test_what_is_shown_matters(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above: the frames half a second later, and another frame."""
    pcm, folder, system = speech(SECONDS), checkpoint("plain"), request("_", [SYSTEM]).messages
    whole, _ = await answered(folder, monkeypatch, filmed(EVENLY, pcm), None)
    for seen in (frames([at_s + 1 for at_s in EVENLY[:7]]), [VideoFrame(FRAMES[1], 0.0), *frames(EVENLY)[1:]]):
        live, _ = await answered(folder, monkeypatch, system, shown(pcm, seen))
        assert float((live - whole).abs().max()) > 1e-3


async def test_the_reference_says_the_same(
    checkpoint: Folder, oracle: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers, given the whole: frames at two a second with their sound (use_audio_in_video)."""
    pcm = speech(SECONDS)
    turns: list[Turn] = [SYSTEM, ("user", [Video(FRAMES, CAMERA.fps, pcm)])]
    reference = oracle("plain").answer(turns, 6, 4)
    live, said = await answered(
        checkpoint("plain"), monkeypatch, request("_", [SYSTEM]).messages, shown(pcm, frames(EVENLY)), window_s=8
    )
    assert float((live - reference.thoughts.text[0]).abs().max()) <= 1e-4
    assert int(live.argmax()) == int(reference.thoughts.text[0].argmax())
    close = reference.thoughts.close_calls()["text"]
    same = min(close, default=len(reference.ids))
    assert said.ids[:same] == reference.ids[:same]


@pytest.mark.parametrize("seconds", [SECONDS, 2.2], ids=["as long", "the frames go on"])
def test_segments_are_laid_out_like_the_whole(seconds: float, checkpoint: Folder) -> None:
    """Rows and positions, the talker's too, in segments of one second and in a single segment."""
    asked = structs.replace(request("_", [SYSTEM]), messages=filmed(EVENLY, speech(seconds)))
    made = [Prompter(Qwen3OmniSource(StageConfig(checkpoint("plain"), options={"window_s": s}))) for s in (1, 8)]
    cut, whole = (one.prompt(one.draft(asked)) for one in made)
    assert len(cut.blocks) > len(whole.blocks) == 1
    assert cut.ids.tolist() == whole.ids.tolist()
    assert np.array_equal(cut.positions, whole.positions)
    assert np.array_equal(cut.talker.positions, whole.talker.positions)


async def test_four_fifths_of_the_rows_are_prefilled_before_the_commit(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, before = Counted(monkeypatch), list[int]()
    pcm = speech(SECONDS)
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:

        def read() -> bool:
            before.append(counted.thought)
            return counted.thought >= 0.8 * ROWS  # with less it would wait for ever

        asked = request("live", [SYSTEM], 1, 3, live=True, camera=True)
        said = await ask(engine, asked, shown(pcm, frames(EVENLY), read))
    assert len(said.prompt) == ROWS
    assert before[-1] < ROWS, "the last window is open until the user stops"


async def left_at_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch, window_s: float | None
) -> tuple[Counted, Said, Settled]:
    """What is computed once the user is silent, where all that could be done before that was."""
    counted, settled = Counted(monkeypatch), Settled(monkeypatch)

    async def turn() -> AsyncIterator[Chunk]:
        async for chunk in settled.paced(shown(speech(SECONDS), frames(EVENLY))):
            yield chunk
        counted.rows = counted.thought = counted.encoded = counted.looked = 0

    async with Engine(spec(folder, window_s=window_s)) as engine:
        said = await ask(engine, request("live", [SYSTEM], 1, 3, live=True, camera=True), turn())
    return counted, said, settled


@pytest.mark.bench  # it counts the processor's time of this process, on one thread
@pytest.mark.timeout(300)
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "at once"])
async def test_behind_the_commit_a_camera_costs_next_to_nothing(
    settled: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a turn of which nothing was taken in before its end."""
    asyncio.get_running_loop().set_debug(False)  # it would be counted
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
        pairs = await pairs_ms(engine, 6, SECONDS, Settled(monkeypatch) if settled else None)
    ratio = statistics.median(seen / heard for heard, seen in pairs)
    print(f"the processor's time behind the commit, shown over spoken: {ratio:.2f}")
    assert (ratio <= 1.6) == settled


async def test_when_the_user_stops_only_the_sound_of_the_open_window_is_left(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last picture is in, though its second frame might still have come."""
    counted, said, _ = await left_at_the_end(checkpoint("plain"), monkeypatch, 1)
    assert len(said.prompt) == ROWS
    assert counted.looked == 0
    assert counted.thought == OPEN + ENDS
    assert counted.rows <= 2 * counted.thought, "the talker hears no more than that either"


async def test_in_the_encoders_own_windows_all_that_is_shown_is_looked_at_while_the_user_speaks(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows behind a sound that goes on cannot be computed: of the open window that is all but the first picture."""
    counted, said, settled = await left_at_the_end(checkpoint("plain"), monkeypatch, None)
    assert (counted.looked, counted.encoded) == (0, 1)
    begun, seen = len(settled.made[0].ids), settled.made[-2]
    picture = seen.blocks[0].cells
    assert counted.thought == len(said.prompt) - begun - picture - 1, "and the mark before a sound"
    assert len(seen.ahead) == 5


async def test_what_is_kept_of_a_turn_that_was_shown_is_what_is_kept_of_the_whole(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, values and hidden rows of thinker and talker; once, and not once for each of the turn's states."""
    found = defaultdict[str, dict[int, list[Any]]](dict)
    copies = list[str]()
    keep = Prefixes.keep

    def keeping(prefixes: Any, session: str, ids: Any, kept: Any, size: int) -> None:
        keep(prefixes, session, ids, kept, size)
        found[session][id(prefixes)] = [list(ids), prefixes.counts.held_bytes, kept]
        copies.append(session)

    monkeypatch.setattr(Prefixes, "keep", keeping)
    pcm, paced = speech(SECONDS), Settled(monkeypatch).paced(shown(speech(SECONDS), frames(EVENLY)))
    for name, messages, turn in (
        ("whole", filmed(EVENLY, pcm), None),
        ("live", request("_", [SYSTEM]).messages, paced),
    ):
        async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
            asked = request(name, [SYSTEM], 3, 3, live=turn is not None, camera=turn is not None)
            await ask(engine, structs.replace(asked, messages=messages), turn)
    assert {name: len(stages) for name, stages in found.items()} == {"whole": 2, "live": 2}
    assert copies.count("live") - copies.count("whole") == 1 + int(SECONDS), "of the thinker, one a window"
    by_layers = [sorted(found[name].values(), key=lambda stage: len(stage[2].keys)) for name in ("whole", "live")]
    for (ids, held, one), (others, other_held, other) in zip(*by_layers, strict=True):
        assert (others, other_held) == (ids, held)
        for part in type(one).__slots__:
            gap = np.abs(np.asarray(getattr(one, part)) - np.asarray(getattr(other, part)))
            assert gap.max(initial=0) <= 1e-4, part


async def test_a_turn_that_is_answered_anew_is_known(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that changes once more in an answer that is begun again changes to what the session knows."""
    settled, found, rows = Settled(monkeypatch), list[Said](), list[int]()
    counted = Counted(monkeypatch)
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
        for number in range(2):
            counted.taken()
            asked = request(f"{number}", [SYSTEM], 4, 8, live=True, camera=True, session="s")
            found.append(await ask(engine, asked, settled.paced(shown(speech(SECONDS), frames(EVENLY)))))
            rows.append(counted.taken()[0])
    assert (found[0].ids, found[0].codes.tolist()) == (found[1].ids, found[1].codes.tolist())
    assert rows[1] < rows[0] / 2, "only pictures with one frame are new"


async def test_the_next_turn_takes_over_what_was_shown(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    pcm = speech(SECONDS)
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
        asked = request("one", [SYSTEM], 1, 3, live=True, camera=True, session="s")
        first = await ask(engine, asked, shown(pcm, frames(EVENLY)))
        counted.thought = counted.encoded = 0
        messages = (*filmed(EVENLY, pcm), *request("?", [("user", ["And?"])]).messages)
        second = request("two", [SYSTEM], 1, 3, session="s")
        said = await ask(engine, structs.replace(second, messages=messages))
    assert counted.encoded == 0
    assert counted.thought < len(said.prompt) - len(first.prompt) + 12


async def test_a_lost_thinker_is_shown_the_same_again(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, pcm = Counted(monkeypatch), speech(SECONDS)
    whole = spec(checkpoint("plain"), window_s=1)
    parts = ("thinker",), ("talker", "code2wav")
    workers = tuple(WorkerSpec(stages=stages, replicas=2 - i, max_batch=4) for i, stages in enumerate(parts))
    found: list[Said] = []
    for lost in (False, True):
        counted.thought = 0
        gone = asyncio.Event()
        async with Engine(replace(whole, workers=workers, empty_s=0.05)) as engine:

            async def accident(engine: Engine = engine, gone: asyncio.Event = gone) -> None:
                await until(lambda: counted.thought >= 60)
                assert lose(engine, "thinker")
                gone.set()

            async with asyncio.TaskGroup() as group:
                if lost:
                    group.create_task(accident())
                asked = request("t", [SYSTEM], 6, 6, live=True, camera=True)
                over = gone.is_set if lost else lambda: True
                found.append(await ask(engine, asked, shown(pcm, frames(EVENLY), over)))
    well, bereft = found
    assert well.ids == bereft.ids
    assert well.codes.tolist() == bereft.codes.tolist()


# Bad input


def film(folder: Path) -> StreamingFilm:
    source = Qwen3OmniSource(StageConfig(folder, options={"window_s": 1}))
    return Prompter(source).media_processor.watch()


@pytest.mark.parametrize("at_s", [np.nan, np.inf, -1.0])
def test_a_time_that_is_none_is_refused(at_s: float, checkpoint: Folder) -> None:
    with pytest.raises(RequestError, match="cannot be seen"):
        film(checkpoint("plain")).add_frame(VideoFrame(FRAMES[0], at_s))


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4)])
def test_what_is_no_picture_is_refused(shape: tuple[int, ...], checkpoint: Folder) -> None:
    with pytest.raises(RequestError, match="cannot be seen"):
        film(checkpoint("plain")).add_frame(VideoFrame(np.zeros(shape, np.uint8), 0.0))


def test_a_size_that_changes_is_refused(checkpoint: Folder) -> None:
    turn = film(checkpoint("plain"))
    turn.add_frame(VideoFrame(FRAMES[0], 0.0))
    with pytest.raises(RequestError, match="use one size"):
        turn.add_frame(VideoFrame(FRAMES[0].transpose(1, 0, 2), 0.0))


def test_frames_that_come_too_early_or_too_late_count_as_taken_where_they_lie(checkpoint: Folder) -> None:
    turn, pcm = film(checkpoint("plain")), speech(3.0)
    turn.add_frame(VideoFrame(FRAMES[0], 3600.0))  # a clock that jumps
    assert turn.push(pcm[: int(1.2 * MIC_RATE_HZ)])
    assert [block.times for block in turn.windows()] == [(0.0,)]
    turn.add_frame(VideoFrame(FRAMES[1], 0.2))  # of a second that is over
    turn.push(pcm[int(1.2 * MIC_RATE_HZ) :])
    assert [block.times for block in turn.whole()] == [(0.0,), (13.0,), ()]


def test_of_sixty_frames_a_second_the_first_of_each_slot_are_seen(checkpoint: Folder) -> None:
    one, other, pcm = film(checkpoint("plain")), film(checkpoint("plain")), speech(1.0)
    taken = [one.add_frame(VideoFrame(FRAMES[number // 10], 0.0)) for number in range(60)]
    assert taken == [True, *[False] * 59]
    other.add_frame(VideoFrame(FRAMES[0], 0.0))
    for turn in (one, other):
        turn.push(pcm)
    found, wanted = ([block.names.tolist() for block in turn.whole()] for turn in (one, other))
    assert found == wanted


def test_a_frame_a_minute_is_seen_in_its_second(checkpoint: Folder) -> None:
    turn, pcm = film(checkpoint("plain")), speech(61.5)
    turn.add_frame(VideoFrame(FRAMES[0], 0.0))
    turn.push(pcm[: 60 * MIC_RATE_HZ])
    turn.add_frame(VideoFrame(FRAMES[1], 60.0))
    turn.push(pcm[60 * MIC_RATE_HZ :])
    assert [number for number, block in enumerate(turn.whole()) if block.pictures] == [0, 60]


async def test_a_camera_that_shows_nothing_after_all_leaves_the_speech(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
        said = await ask(engine, request("live", [SYSTEM], 2, 2, live=True, camera=True), blocks(speech(1.5)))
    assert said.ids


async def test_a_black_camera_is_looked_at_like_any_other(checkpoint: Folder) -> None:
    pcm = speech(1.5)
    async with Engine(spec(checkpoint("plain"), window_s=1)) as engine:
        asked = request("live", [SYSTEM], 2, 2, live=True, camera=True)
        dark = await ask(engine, asked, shown(pcm, [VideoFrame(np.zeros_like(FRAMES[0]), 0.0)]))
        unseen = await ask(engine, request("ears", [SYSTEM], 2, 2, live=True), blocks(pcm))
    assert dark.ids
    assert len(dark.prompt) > len(unseen.prompt)
