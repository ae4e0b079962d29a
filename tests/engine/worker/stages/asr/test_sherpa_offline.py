"""Ears of sherpa-onnx that hear whole clips: the library itself, with networks of a few nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import wire
from engine.chunk import Speech, Transcript
from engine.core import MIC_RATE_HZ
from engine.errors import ConfigError, WeightsError
from engine.worker.host import make
from engine.worker.stage import StageConfig
from tests.engine.fakes import Desk, opened, until, working

pytest.importorskip("sherpa_onnx")
pytest.importorskip("onnx")

from tests.engine.worker.stages.asr import tiny_ears
from tests.engine.worker.stages.asr.test_sherpa import Counting, heard, pieces
from tests.engine.worker.stages.asr.tiny_ears import speech

MAKERS: dict[str, Callable[[Path], Path]] = {"transducer": tiny_ears.nemo_transducer, "ctc": tiny_ears.nemo_ctc}


def ears(folder: Path | None, **options: Any) -> Any:
    return make("asr.sherpa_offline", "ears", 0, StageConfig(weights=folder, slots=32, options=options))


@pytest.fixture(scope="module", params=MAKERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ears of each kind."""
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param) / "parakeet-en-fr")


@pytest.fixture(scope="module")
def ctc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_ears.nemo_ctc(tmp_path_factory.mktemp("ctc"))


def alone(stage: Any, pcm: np.ndarray) -> str:
    """What the library hears of a clip."""
    stream = stage._recognizer.create_stream()
    stream.accept_waveform(MIC_RATE_HZ, pcm.astype(np.float32) / 32768)
    stage._recognizer.decode_stream(stream)
    return stream.result.text.strip().lower()


async def spoken(desk: Desk, run: str, pcm: np.ndarray, size: int = 1600) -> tuple[list[str], list[Transcript]]:
    desk.put(opened(run, "ears", credit=10_000, live=True), *(wire.Feed(run, piece) for piece in pieces(pcm, size)))
    desk.put(wire.End(run))
    await desk.ended(run)
    return heard(desk, run)


async def test_what_is_heard_is_what_the_library_hears_of_the_whole(folder: Path) -> None:
    stage, pcm = ears(folder), speech(3, 7)
    assert alone(stage, pcm)
    async with working(stage) as desk:
        assert (await spoken(desk, "a", pcm))[1] == [Transcript(alone(stage, pcm), final=True)]


async def test_words_come_while_the_user_speaks(folder: Path) -> None:
    stage, pcm = ears(folder), speech(2, 3)
    async with working(stage) as desk:
        desk.put(opened("a", "ears", live=True))
        for second in range(2):
            desk.put(wire.Feed("a", Speech(pcm[second * MIC_RATE_HZ : (second + 1) * MIC_RATE_HZ])))
            await until(lambda second=second: len(heard(desk, "a")[0]) > second)
        assert heard(desk, "a")[0] == [alone(stage, pcm[:MIC_RATE_HZ]), alone(stage, pcm)]
        desk.put(wire.Close("a"))


def ticking(by_s: float) -> Callable[[], float]:
    """A clock that goes on so far each time that it is looked at."""
    times: Iterator[float] = iter(np.arange(10_000) * by_s)
    return lambda: float(next(times))


async def test_ears_that_take_long_hear_a_clip_anew_less_often_and_at_its_end(ctc: Path) -> None:
    """A second of work each time: what is new must be worth it."""
    counts: list[int] = []
    for costs_s in (0.0, 1.0):
        stage = ears(ctc)
        stage._clock, stage._share = ticking(costs_s), 0.0
        stage._recognizer = counting = Counting(stage._recognizer)
        async with working(stage) as desk:
            desk.put(opened("a", "ears", credit=10_000, live=True))
            for piece in pieces(speech(12, 5)):
                steps = desk.worker.steps
                desk.put(wire.Feed("a", piece))
                await until(lambda steps=steps: desk.worker.steps > steps)
            desk.put(wire.End("a"))
            await desk.ended("a")
            assert heard(desk, "a")[1][0].text == alone(stage, speech(12, 5))
        counts.append(len(counting.batches))
    assert counts[0] == 16, "every .8 seconds, and at the end"
    assert counts[1] <= 5


async def test_all_who_end_together_are_heard_in_one_batch_each_for_themselves(ctc: Path) -> None:
    stage = ears(ctc)
    said = [speech(1 + seed / 10, seed) for seed in range(8)]
    expected = [alone(stage, pcm) for pcm in said]
    stage._recognizer = counting = Counting(stage._recognizer)
    async with working(stage, max_batch=16) as desk:
        for n, pcm in enumerate(said):
            desk.put(opened(f"{n}", "ears", live=True), wire.Feed(f"{n}", Speech(pcm)), wire.End(f"{n}"))
        await desk.ended(*map(str, range(8)))
        assert [heard(desk, f"{n}")[1][0].text for n in range(8)] == expected
    assert max(counting.batches) == 8


@pytest.mark.parametrize("samples", [0, 5, 1500, 30_000])
async def test_silence_and_what_is_too_short_are_not_understood(folder: Path, samples: int) -> None:
    async with working(ears(folder)) as desk:
        told = await spoken(desk, "a", np.zeros(samples, np.int16))
    assert told == ([], [Transcript("", final=True, understood=False)])


def test_a_clip_may_take_as_long_as_it_lasts_many_times_over(ctc: Path) -> None:
    from engine.worker.pace import OneFrame
    from engine.worker.stage_request import StageRequest
    from tests.engine.fakes import request

    stage, req = ears(ctc), StageRequest(request(), 0, OneFrame())
    stage.open(req)
    req.pending.append(np.zeros(60 * MIC_RATE_HZ, np.int16))
    assert stage.deadline_s([req]) == 610


@pytest.mark.parametrize(
    ("make_", "harm", "reason"),
    [
        (tiny_ears.ctc, lambda folder: None, "asr.sherpa_offline knows those of NeMo; use: asr.sherpa is for it"),
        (tiny_ears.nemo_ctc, lambda folder: (folder / "tokens.txt").unlink(), "has no tokens.txt"),
        (tiny_ears.nemo_transducer, lambda folder: (folder / "joiner.onnx").unlink(), "has no joiner"),
        (
            tiny_ears.nemo_ctc,
            lambda folder: tiny_ears.nemo_ctc(folder, vocab_size=""),
            "says nothing of its vocab_size",
        ),
        (tiny_ears.nemo_ctc, lambda folder: (folder / "model.onnx").write_bytes(b"x"), "is no ONNX file, or is cut"),
    ],
)
def test_ears_that_cannot_be_loaded_are_told_in_one_sentence(
    tmp_path: Path, make_: Callable[[Path], Path], harm: Callable[[Path], Any], reason: str
) -> None:
    found = make_(tmp_path)
    harm(found)
    with pytest.raises(WeightsError, match=reason):
        ears(found)


def test_streaming_ears_name_the_others(tmp_path: Path) -> None:
    found = tiny_ears.nemo_transducer(tmp_path)
    with pytest.raises(WeightsError, match=r"use: asr\.sherpa_offline is for it"):
        make("asr.sherpa", "ears", 0, StageConfig(weights=found))


def test_without_the_package_it_is_said_how_to_install_it(ctc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sherpa_onnx", None)
    with pytest.raises(ConfigError, match=r"asr.sherpa_offline needs the package sherpa-onnx"):
        ears(ctc)


def test_what_ears_say_of_themselves(folder: Path) -> None:
    info = ears(folder).info
    assert info.hears_only
    assert info.blocking
    assert info.facets.heard_languages == ("en", "fr")
