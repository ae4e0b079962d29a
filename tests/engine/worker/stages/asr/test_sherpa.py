"""Streaming ears of sherpa-onnx: the library itself, with networks of a few nodes that hear tokens in any sound."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import AudioPart, Engine, EngineSpec, Message, Request, StageSpec
from engine.chunk import Speech, Transcript, kinds
from engine.core import MIC_RATE_HZ, SpeechHints
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from tests.engine.fakes import Desk, only, opened, until, working

pytest.importorskip("sherpa_onnx")
pytest.importorskip("onnx")

from tests.engine.worker.stages.asr import tiny_ears
from tests.engine.worker.stages.asr.tiny_ears import speech

MAKERS: dict[str, Callable[[Path], Path]] = {
    "transducer": tiny_ears.transducer, "ctc": tiny_ears.ctc, "paraformer": tiny_ears.paraformer,
    "nemo transducer": tiny_ears.streaming_nemo_transducer, "nemo ctc": tiny_ears.streaming_nemo_ctc,
}  # fmt: skip
PIECE = 1600


def ears(folder: Path | None, slots: int = 32, **options: Any) -> Any:
    return make("asr.sherpa", "ears", 0, StageConfig(weights=folder, slots=slots, options=options))


@pytest.fixture(scope="module", params=MAKERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ears of each kind."""
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param) / "tiny-en-de")


@pytest.fixture(scope="module")
def ctc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_ears.ctc(tmp_path_factory.mktemp("ctc"))


def pieces(pcm: np.ndarray, size: int = PIECE) -> list[Speech]:
    return [Speech(pcm[at : at + size]) for at in range(0, len(pcm), size)]


def alone(stage: Any, pcm: np.ndarray, size: int = PIECE) -> tuple[list[str], str]:
    """What the library hears where nobody else speaks: its words after each piece, and all of them."""
    recognizer = stage._recognizer
    stream = recognizer.create_stream()
    partials: list[str] = []

    def decode() -> None:
        while recognizer.is_ready(stream):
            recognizer.decode_stream(stream)
            words = recognizer.get_result(stream).strip().lower()
            partials.extend([words] if words != (partials or [""])[-1] else [])

    for piece in pieces(pcm, size):
        stream.accept_waveform(MIC_RATE_HZ, piece.pcm.astype(np.float32) / 32768)
        decode()
    stream.accept_waveform(MIC_RATE_HZ, np.zeros(2 * MIC_RATE_HZ, np.float32))
    stream.input_finished()
    decode()
    return partials, recognizer.get_result(stream).strip().lower()


def heard(desk: Desk, run: str) -> tuple[list[str], list[Transcript]]:
    """What was told while the user spoke, and what at the end."""
    told = only(Transcript, [emit.chunk for emit in desk.of(messages.Emit, run)])
    return [chunk.text for chunk in told if not chunk.final], [chunk for chunk in told if chunk.final]


async def spoken(
    desk: Desk, run: str, pcm: np.ndarray, size: int = PIECE, keywords: tuple[str, ...] = ()
) -> tuple[list[str], list[Transcript]]:
    request = opened(run, "ears", credit=10_000, live=True, hints=SpeechHints(keywords=keywords))
    desk.put(request, *(messages.Feed(run, piece) for piece in pieces(pcm, size)))
    desk.put(messages.End(run))
    await desk.ended(run)
    return heard(desk, run)


async def test_what_is_heard_is_what_the_library_hears_alone(folder: Path) -> None:
    stage, pcm = ears(folder), speech(3, 7)
    partials, final = alone(stage, pcm)
    async with working(stage) as desk:
        told, finals = await spoken(desk, "a", pcm)
    assert len(partials) > 5
    assert told == partials[: len(told)], "the last words may come with the end"
    assert len(told) >= len(partials) - 1
    assert [(chunk.text, chunk.final) for chunk in finals] == [(final, True)]


async def test_words_have_the_times_and_the_likelihood_that_the_library_tells(folder: Path) -> None:
    stage, pcm = ears(folder), speech(4, 2)
    stream = stage._recognizer.create_stream()
    for wave in (pcm.astype(np.float32) / 32768, np.zeros(2 * MIC_RATE_HZ, np.float32)):
        stream.accept_waveform(MIC_RATE_HZ, wave)
    while stage._recognizer.is_ready(stream):
        stage._recognizer.decode_stream(stream)
    result = stage._recognizer.get_result_all(stream)
    async with working(stage) as desk:
        (final,) = (await spoken(desk, "a", pcm))[1]
    starts_s = [start_s for token, start_s in zip(result.tokens, result.timestamps, strict=False) if token[0] == " "]
    assert [word.start_s for word in final.words] == [pytest.approx(start_s, abs=1e-3) for start_s in starts_s]
    assert bool(final.words) == bool(result.timestamps)
    if final.words:
        assert [word.text for word in final.words] == final.text.split()
    if result.ys_probs:
        assert sum(word.logprob or 0 for word in final.words) == pytest.approx(sum(result.ys_probs), abs=0.01)
        assert all(word.logprob is not None and word.logprob <= 0 for word in final.words)
    else:
        assert all(word.logprob is None for word in final.words)


def test_what_a_transducer_tells_of_a_token_is_the_logarithm_of_its_probability(tmp_path: Path) -> None:
    """The library scales by a temperature of 2 unless it is told not to."""
    stage = ears(tiny_ears.transducer(tmp_path))
    assert stage._recognizer.config.temperature_scale == 1.0


async def test_keywords_are_hotwords_of_a_transducer(tmp_path: Path) -> None:
    stage, pcm = ears(tiny_ears.transducer(tmp_path), hotwords_score=20.0), speech(3, 7)
    assert stage.info.facets.hints == {"keywords"}
    async with working(stage) as desk:
        [plain], [hinted], [unknown] = [
            (await spoken(desk, run, pcm, keywords=keywords))[1]
            for run, keywords in (("a", ()), ("b", ("xyz", "hello/world")), ("c", ("zebra",)))
        ]
    assert unknown.text == plain.text, "a keyword that the model cannot write has no effect"
    assert hinted.text.count("hello") > plain.text.count("hello")
    assert "world" in hinted.text.replace(" ", "")


def test_hotwords_need_a_transducer_and_a_score_in_range(ctc: Path, tmp_path: Path) -> None:
    assert ears(tiny_ears.transducer(tmp_path)).info.facets.hints == frozenset()
    with pytest.raises(ConfigError, match=r"options\.hotwords_score: only zipformer transducers take hotwords"):
        ears(ctc, hotwords_score=1.5)
    with pytest.raises(ConfigError, match=r"must be from 0 to 100 \(got -1"):
        ears(tmp_path, hotwords_score=-1.0)


async def test_words_come_while_the_user_speaks(folder: Path) -> None:
    async with working(ears(folder)) as desk:
        desk.put(opened("a", "ears", live=True), *(messages.Feed("a", piece) for piece in pieces(speech(3, 3))))
        await until(lambda: len(heard(desk, "a")[0]) >= 2)
        first, second, *_ = heard(desk, "a")[0]
        assert second.startswith(first)
        desk.put(messages.Close("a"))


class Counting:
    """The library's recognizer, with the sizes of its batches."""

    def __init__(self, recognizer: Any) -> None:
        self.recognizer, self.batches = recognizer, list[int]()

    def decode_streams(self, streams: Sequence[Any]) -> None:
        self.batches.append(len(streams))
        self.recognizer.decode_streams(streams)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recognizer, name)


async def test_twenty_who_speak_at_once_are_heard_in_one_batch_each_for_themselves(folder: Path) -> None:
    stage = ears(folder)
    said = [speech(2, seed) for seed in range(20)]
    expected = [alone(stage, pcm)[1] for pcm in said]
    assert len({*expected}) == 20
    stage._recognizer = counting = Counting(stage._recognizer)
    async with working(stage, max_batch=32) as desk:
        for n in range(20):
            desk.put(opened(f"{n}", "ears", credit=10_000, live=True))
        for at in range(0, 2 * MIC_RATE_HZ, PIECE):
            desk.put(*(messages.Feed(f"{n}", Speech(pcm[at : at + PIECE])) for n, pcm in enumerate(said)))
        desk.put(*(messages.End(f"{n}") for n in range(20)))
        await desk.ended(*map(str, range(20)))
        assert [heard(desk, f"{n}")[1][0].text for n in range(20)] == expected
    decoded = sum(counting.batches)
    assert max(counting.batches) == 20
    assert len(counting.batches) <= decoded / 5, f"{decoded} chunks in {len(counting.batches)} steps"


async def test_who_comes_after_another_hears_nothing_of_theirs(ctc: Path) -> None:
    stage = ears(ctc, slots=1)
    async with working(stage, max_batch=1) as desk:
        first, again = speech(2, 1), speech(2, 2)
        await spoken(desk, "a", first)
        desk.put(opened("left", "ears", live=True), *(messages.Feed("left", piece) for piece in pieces(first)))
        await until(lambda: bool(heard(desk, "left")[0]))
        desk.put(messages.Close("left"))
        assert (await spoken(desk, "b", again))[1][0].text == alone(stage, again)[1]


@pytest.mark.parametrize("pcm", [np.zeros(0, np.int16), np.zeros(30_000, np.int16), np.zeros(5, np.int16)])
async def test_silence_is_not_understood(ctc: Path, pcm: np.ndarray) -> None:
    async with working(ears(ctc)) as desk:
        assert await spoken(desk, "a", pcm) == ([], [Transcript("", final=True, understood=False)])


async def test_the_last_word_is_heard_though_nothing_follows_it(ctc: Path) -> None:
    stage = ears(ctc)
    for samples in range(16_000, 22_000, 700):
        pcm = speech(2, 5)[:samples]
        async with working(stage) as desk:
            assert (await spoken(desk, "a", pcm))[1][0].text == alone(stage, pcm)[1]


async def test_a_recording_of_a_minute_is_heard_as_it_would_be_in_pieces(ctc: Path) -> None:
    stage, pcm = ears(ctc), speech(60, 9)
    async with working(stage) as desk:
        assert (await spoken(desk, "a", pcm, len(pcm)))[1][0].text == alone(stage, pcm)[1]


async def test_a_transcription_asks_the_ears_alone(ctc: Path) -> None:
    pcm = speech(2, 4)
    stages = (
        StageSpec(use="asr.sherpa", name="ears", weights=str(ctc)),
        StageSpec(use="script.thinker", name="thinker"),
    )
    recorded = (Message("user", (AudioPart(pcm),)),)
    async with Engine(EngineSpec(stages=stages, launcher="inline")) as engine:
        asked = Request(id="r", session="s", messages=recorded, wants=frozenset({"transcript"}))
        async with engine.open(asked) as chunks:
            told = [chunk async for chunk in chunks]
    assert [chunk.text for chunk in told if isinstance(chunk, Transcript) and chunk.final] == [alone(ears(ctc), pcm)[1]]
    assert {chunk.kind for chunk in told} == {"transcript"}


def test_what_ears_say_of_themselves(folder: Path) -> None:
    info = ears(folder).info
    assert (info.takes, info.emits, info.feeds) == (kinds(Speech), kinds(Transcript), kinds(Transcript))
    assert info.hears_only
    assert info.blocking
    assert info.facets.heard_languages == ("en", "de"), "as the folder's name says"
    assert ears(folder, languages=["fr"]).info.facets.heard_languages == ("fr",)


def test_of_two_kinds_of_weights_the_quantized_ones_are_taken(tmp_path: Path) -> None:
    found = tiny_ears.transducer(tmp_path)
    for part in ("encoder", "decoder", "joiner"):
        (found / f"{part}-1.int8.onnx").write_bytes((found / f"{part}-1.onnx").read_bytes())
    assert {Path(path).name for path in ears(found)._ears.arguments.values() if isinstance(path, str)} == {
        "encoder-1.int8.onnx", "decoder-1.int8.onnx", "joiner-1.int8.onnx", "tokens.txt",
    }  # fmt: skip


def without(name: str) -> Callable[[Path], Any]:
    """Harm to a folder: a file is not there."""
    return lambda folder: (folder / name).unlink()


def cut(name: str) -> Callable[[Path], Any]:
    """Harm to a folder: of a file, half is there."""
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: (folder / name).stat().st_size // 2]
    )


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (without("tokens.txt"), "has no tokens.txt"),
        (without("joiner-1.onnx"), "has no joiner. Copy or download"),
        (
            lambda folder: tiny_ears.transducer(folder, T=""),
            "lacks the metadata T, so it is not part of a streaming model",
        ),
        (lambda folder: tiny_ears.transducer(folder, model_type="lstm"), "has the model type 'lstm'; asr.sherpa needs"),
        (lambda folder: (folder / "encoder-1.onnx").write_bytes(b"x" * 99), "is not an ONNX file, or is incomplete"),
        (lambda folder: (folder / "joiner-1.onnx").write_bytes(b""), "cannot be loaded"),
        (cut("tokens.txt"), r"tokens\.txt (has only \d of 12 tokens|is not a token table or)"),
        (cut("encoder-1.onnx"), "is not an ONNX file, or is incomplete"),
        (cut("decoder-1.onnx"), "is not an ONNX file, or is incomplete"),
        (cut("joiner-1.onnx"), "cannot be loaded"),
    ],
)
def test_ears_that_cannot_be_loaded_are_told_in_one_sentence(
    tmp_path: Path, harm: Callable[[Path], Any], reason: str
) -> None:
    found = tiny_ears.transducer(tmp_path)
    harm(found)
    with pytest.raises(WeightsError, match=reason):
        ears(found)


@pytest.mark.parametrize(
    ("make_", "missing"),
    [
        (tiny_ears.streaming_nemo_ctc, "window_size"),
        (tiny_ears.streaming_nemo_ctc, "cache_last_time_dim2"),
        (tiny_ears.streaming_nemo_transducer, "cache_last_channel_dim3"),
        (tiny_ears.streaming_nemo_transducer, "pred_hidden"),
    ],
)
def test_a_streaming_model_of_nemo_without_its_metadata_is_one_sentence(
    tmp_path: Path, make_: Callable[..., Path], missing: str
) -> None:
    found = make_(tmp_path, **{missing: ""})
    with pytest.raises(WeightsError, match=f"lacks the metadata {missing}, so it is not part of a streaming model of"):
        ears(found)


@pytest.mark.parametrize("make_", [tiny_ears.streaming_nemo_ctc, tiny_ears.streaming_nemo_transducer])
def test_a_streaming_model_of_nemo_is_refused_by_the_stage_of_whole_clips(
    tmp_path: Path, make_: Callable[..., Path]
) -> None:
    with pytest.raises(WeightsError, match=r"asr\.sherpa_offline supports NeMo, .*; set use: asr\.sherpa\."):
        make("asr.sherpa_offline", "ears", 0, StageConfig(weights=make_(tmp_path)))


def test_ears_that_are_nowhere_are_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="There is no folder"):
        ears(tmp_path / "none")
    with pytest.raises(WeightsError, match=r"has neither encoder, decoder and joiner networks nor a model\.onnx"):
        ears(tmp_path)
    with pytest.raises(ConfigError, match=r"asr\.sherpa needs `weights`"):
        ears(None)
    with pytest.raises(ConfigError, match=r"options\.langages: unknown key"):
        ears(tiny_ears.ctc(tmp_path), langages=["en"])


def test_without_the_package_it_is_said_how_to_install_it(ctc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sherpa_onnx", None)
    with pytest.raises(ConfigError, match=r"asr.sherpa needs the package sherpa-onnx: .+ pip install .+\[local\]"):
        ears(ctc)
