"""What every stage of ears holds to, whatever network hears: each user's turn is their own, and breaks alone.

The libraries are the real ones, with networks of a few nodes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import AudioPart, Engine, EngineError, EngineSpec, Message, Request, StageSpec, WorkerSpec
from engine.chunk import Chunk, Speech, Transcript
from engine.core import Want
from engine.worker.asr import faster_whisper, moonshine
from engine.worker.libraries import sherpa

pytest.importorskip("sherpa_onnx")
pytest.importorskip("onnx")

from tests.engine.worker.stages.asr import tiny_clip_ears, tiny_ears, tiny_moonshine
from tests.engine.worker.stages.asr.tiny_ears import speech

PIECE = 1600
MARK = 12345
"""The first sample of a turn at which the ears break."""


@dataclass(frozen=True)
class Ears:
    """Ears as a configuration has them."""

    use: str
    make: Callable[[Path], Path]


EARS = {
    "zipformer": Ears("asr.sherpa", tiny_ears.transducer),
    "streaming paraformer": Ears("asr.sherpa", tiny_ears.paraformer),
    "parakeet": Ears("asr.sherpa_offline", tiny_ears.nemo_transducer),
    "whisper": Ears("asr.sherpa_offline", tiny_clip_ears.whisper),
    "moonshine by sherpa": Ears("asr.sherpa_offline", tiny_clip_ears.moonshine),
    "sense voice": Ears("asr.sherpa_offline", tiny_clip_ears.sense_voice),
    "qwen3": Ears("asr.sherpa_offline", tiny_clip_ears.qwen3),
}
if find_spec("faster_whisper") is not None:
    from tests.engine.worker.stages.asr import tiny_whisper

    EARS["faster whisper"] = Ears("asr.faster_whisper", tiny_whisper.whisper)
if find_spec("moonshine_voice") is not None:
    EARS["moonshine"] = Ears("asr.moonshine", tiny_moonshine.streaming)

KILLED = list({kind.use: name for name, kind in EARS.items()}.values())
"""One network of each library's part: what is heard again after a loss has been kept by the engine."""


@pytest.fixture(scope="module", params=EARS)
def ears(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StageSpec:
    kind = EARS[request.param]
    return StageSpec(use=kind.use, name="ears", weights=str(kind.make(tmp_path_factory.mktemp("ears") / "tiny-en")))


def inline(ears: StageSpec) -> EngineSpec:
    """These ears in this process, before a thinker of the script's."""
    return EngineSpec(stages=(ears, StageSpec(use="script.thinker", name="thinker")), launcher="inline")


def asked(id: str, pcm: np.ndarray | None = None) -> Request:
    """A transcript, of a recording or of what is spoken meanwhile."""
    parts = () if pcm is None else (AudioPart(pcm),)
    wants: frozenset[Want] = frozenset({"transcript"})
    return Request(id=id, session=id, messages=(Message("user", parts),), live=pcm is None, wants=wants)


async def transcript(engine: Engine, id: str, pcm: np.ndarray) -> str | EngineError:
    """What is heard of a recording, or the error that ends it."""
    try:
        async with engine.open(asked(id, pcm)) as chunks:
            finals = [chunk async for chunk in chunks if isinstance(chunk, Transcript) and chunk.final]
    except EngineError as error:
        return error
    (final,) = finals
    assert final.understood == bool(final.text)
    return final.text


class BreakingTranscriber:
    """Moonshine's transcriber, a stream of which breaks at a MARK."""

    def __init__(self, transcriber: Any) -> None:
        self._transcriber = transcriber

    def create_stream(self, interval_s: float) -> Any:
        stream = self._transcriber.create_stream(interval_s)
        add_audio = stream.add_audio

        def checked(samples: list[float], rate_hz: int) -> None:
            if samples and round(samples[0] * 32768) == MARK:
                raise RuntimeError("a node of the network broke")
            add_audio(samples, rate_hz)

        stream.add_audio = checked
        return stream


class Breaking:
    """The library's recognizer, which breaks while it decodes a turn that begins with MARK."""

    def __init__(self, recognizer: Any) -> None:
        self._recognizer = recognizer

    def create_stream(self) -> Marked:
        return Marked(self._recognizer.create_stream())

    def decode_streams(self, streams: Sequence[Marked]) -> None:
        if any(stream.broken for stream in streams):
            raise RuntimeError("a node of the network broke")
        self._recognizer.decode_streams([stream.stream for stream in streams])

    def __getattr__(self, name: str) -> Any:
        return lambda stream: getattr(self._recognizer, name)(stream.stream)


class Marked:
    """The library's stream, and whether it was given a MARK."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.broken = stream, False

    def accept_waveform(self, rate_hz: int, wave: np.ndarray) -> None:
        self.broken |= bool(len(wave)) and round(float(wave[0]) * 32768) == MARK
        self.stream.accept_waveform(rate_hz, wave)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def breaking_extractor(model: Any) -> Any:
    """faster-whisper's model, which breaks while it computes the features of a turn that begins with MARK."""
    extractor = model.feature_extractor

    def checked(wave: np.ndarray, **options: Any) -> np.ndarray:
        if round(float(wave[0]) * 32768) == MARK:
            raise RuntimeError("a node of the network broke")
        return extractor(wave, **options)

    model.feature_extractor = checked
    return model


async def test_ears_that_break_in_one_turn_end_it_in_one_error_and_the_others_hear_on(
    ears: StageSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {f"{n}": speech(1.5 + n / 10, n) for n in range(4)}
    said["2"][0] = MARK
    async with Engine(inline(ears)) as engine:
        alone = {id: await transcript(engine, id, pcm) for id, pcm in said.items()}
    real = sherpa.recognizer_of
    for module in ("sherpa", "sherpa_offline"):
        where = f"engine.worker.stages.asr.{module}.recognizer_of"
        monkeypatch.setattr(where, lambda *args: Breaking(real(*args)))
    load = faster_whisper.WhisperFolder.load
    monkeypatch.setattr(faster_whisper.WhisperFolder, "load", lambda *args: breaking_extractor(load(*args)))
    transcriber = moonshine.MoonshineEars.transcriber
    monkeypatch.setattr(moonshine.MoonshineEars, "transcriber", lambda ears: BreakingTranscriber(transcriber(ears)))
    async with Engine(inline(ears)) as engine:
        together = await asyncio.gather(*(transcript(engine, id, pcm) for id, pcm in said.items()))
        again = await transcript(engine, "again", said["3"])
    told = dict(zip(said, together, strict=True))
    broken = told.pop("2")
    assert isinstance(broken, EngineError)
    assert broken.code == "stage_failed"
    assert "failed while it computed" in str(broken)
    assert told == {id: text for id, text in alone.items() if id != "2"}
    assert again == told["3"], "a turn after it is heard as before"


LOUDEST = np.tile(np.array([32767, -32768], np.int16), 12_000)


@pytest.mark.parametrize(
    "pcm",
    [np.zeros(0, np.int16), np.zeros(5, np.int16), np.zeros(30_000, np.int16), LOUDEST[:3], LOUDEST],
    ids=["nothing", "five samples", "silence", "a click", "as loud as can be"],
)
async def test_a_turn_of_anything_ends_in_one_transcript(ears: StageSpec, pcm: np.ndarray) -> None:
    async with Engine(inline(ears)) as engine:
        text = await transcript(engine, "a", pcm)
        after = await transcript(engine, "b", speech(2, 1))
    assert isinstance(text, str)
    assert isinstance(after, str)
    assert pcm.any() or not text


@pytest.mark.slow
@pytest.mark.parametrize("ears", KILLED, indirect=True)
async def test_two_users_of_ears_that_are_killed_in_mid_sentence_lose_no_word(ears: StageSpec) -> None:
    said = {"a": speech(3, 11), "b": speech(4, 12)}
    async with Engine(inline(ears)) as engine:
        alone = {id: await transcript(engine, id, pcm) for id, pcm in said.items()}
    assert any(alone.values())
    workers = (WorkerSpec(stages=("ears",)), WorkerSpec(stages=("thinker",)))
    stages = (ears, StageSpec(use="script.thinker", name="thinker"))
    halves = {id: asyncio.Event() for id in said}
    killed = asyncio.Event()
    async with Engine(EngineSpec(stages=stages, workers=workers, empty_s=20.0)) as engine:

        async def hear(id: str) -> list[str]:
            async with engine.open(asked(id), _live(said[id], halves[id], killed)) as chunks:
                return [chunk.text async for chunk in chunks if isinstance(chunk, Transcript) and chunk.final]

        async with asyncio.TaskGroup() as group:
            hearing = {id: group.create_task(hear(id)) for id in said}
            for half in halves.values():
                await half.wait()
            os.kill(_pid(engine), signal.SIGKILL)
            killed.set()
    assert {id: task.result() for id, task in hearing.items()} == {id: [text] for id, text in alone.items()}


async def _live(pcm: np.ndarray, half: asyncio.Event, go_on: asyncio.Event) -> AsyncGenerator[Chunk]:
    """Half of what is said; the rest when it may go on."""
    middle = len(pcm) // 2
    for at in range(0, middle, PIECE):
        yield Speech(pcm[at : min(at + PIECE, middle)])
    half.set()
    await go_on.wait()
    for at in range(middle, len(pcm), PIECE):
        yield Speech(pcm[at : at + PIECE])


def _pid(engine: Engine) -> int:
    """Of the process that hears."""
    return next(iter(engine._fleet.pools["ears"].members())).replica.host.hello.result().pid
