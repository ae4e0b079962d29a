"""Ears of sherpa-onnx that hear whole clips: the library itself, with networks of a few nodes."""

from __future__ import annotations

import base64
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.chunk import Speech, Transcript
from engine.core import MIC_RATE_HZ
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from engine.worker.asr.sherpa_offline import _QWEN3_LANGUAGES
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from tests.engine.fakes import Desk, opened, until, working

pytest.importorskip("sherpa_onnx")
pytest.importorskip("onnx")

from tests.engine.worker.asr.test_moonshine_tokens import tokenizer_bin
from tests.engine.worker.stages.asr import tiny_clip_ears, tiny_ears
from tests.engine.worker.stages.asr.test_sherpa import Counting, cut, heard, pieces, without
from tests.engine.worker.stages.asr.tiny_ears import speech

MAKERS: dict[str, Callable[[Path], Path]] = {
    "transducer": tiny_ears.nemo_transducer, "ctc": tiny_ears.nemo_ctc,
    "zipformer": tiny_ears.clip_zipformer, "whisper": tiny_clip_ears.whisper,
    "moonshine": tiny_clip_ears.moonshine, "merged moonshine": tiny_clip_ears.merged_moonshine,
    "sense voice": tiny_clip_ears.sense_voice, "paraformer": tiny_clip_ears.paraformer, "qwen3": tiny_clip_ears.qwen3,
}  # fmt: skip


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
    """What the library hears of a clip, with the silence that its ears need after it."""
    if len(pcm) < stage._ears.short_s * MIC_RATE_HZ:
        pcm = np.concatenate([pcm, np.zeros(MIC_RATE_HZ // 2, pcm.dtype)])
    stream = stage._ears.stream(stage._recognizer)
    stream.accept_waveform(MIC_RATE_HZ, pcm.astype(np.float32) / 32768)
    stage._recognizer.decode_stream(stream)
    text = stream.result.text.strip()
    return text.lower() if stage._ears.capitals else text


async def spoken(desk: Desk, run: str, pcm: np.ndarray, size: int = 1600) -> tuple[list[str], list[Transcript]]:
    desk.put(opened(run, "ears", credit=10_000, live=True), *(messages.Feed(run, piece) for piece in pieces(pcm, size)))
    desk.put(messages.End(run))
    await desk.ended(run)
    return heard(desk, run)


async def test_what_is_heard_is_what_the_library_hears_of_the_whole(folder: Path) -> None:
    stage, pcm = ears(folder), speech(3, 7)
    assert alone(stage, pcm)
    async with working(stage) as desk:
        (told,) = (await spoken(desk, "a", pcm))[1]
    assert (told.text, told.final, told.understood) == (alone(stage, pcm), True, True)


async def test_words_have_the_times_and_the_likelihood_that_the_library_tells(folder: Path) -> None:
    stage, pcm = ears(folder), speech(3, 7)
    stream = stage._ears.stream(stage._recognizer)
    stream.accept_waveform(MIC_RATE_HZ, pcm.astype(np.float32) / 32768)
    stage._recognizer.decode_stream(stream)
    result = stream.result
    async with working(stage) as desk:
        (final,) = (await spoken(desk, "a", pcm))[1]
    assert bool(final.words) == bool(result.timestamps)
    if not final.words:
        return
    assert "".join(word.text for word in final.words) == final.text.replace(" ", "")
    assert {word.start_s for word in final.words} <= {round(start_s, 3) for start_s in result.timestamps}
    assert final.words[0].start_s == round(result.timestamps[0], 3)
    if result.ys_log_probs:
        assert sum(word.logprob or 0 for word in final.words) == pytest.approx(sum(result.ys_log_probs), abs=0.01)
    if result.durations:
        assert final.words[-1].end_s == pytest.approx(result.timestamps[-1] + result.durations[-1], abs=1e-3)


async def test_letters_that_are_split_over_tokens_are_heard_by_all_who_speak(tmp_path: Path) -> None:
    """Whisper's tokens are bytes: outside of Latin script a letter may be two of them."""
    folder = tiny_clip_ears.whisper(tmp_path)
    halves = [b" \xd1\x8f", b" \xd0", b"\xb4", b"\xd0", b"\xb0", b" \xd0\xb4\xd0\xb0", b"\xbd", b" \xd0\xb8\xd0\xb7",
              b"\xe4\xbd", b"\xa0", b" ok"]  # fmt: skip
    lines = [f"{base64.b64encode(half).decode()} {n}\n" for n, half in enumerate(halves)]
    (folder / "tiny-tokens.txt").write_text("".join(lines), encoding="utf-8")
    stage = ears(folder)
    said = [speech(3, seed) for seed in range(4)]
    expected = [alone(stage, pcm) for pcm in said]
    assert any(not text.isascii() for text in expected)
    async with working(stage, max_batch=16) as desk:
        for n, pcm in enumerate(said):
            desk.put(opened(f"{n}", "ears", live=True), messages.Feed(f"{n}", Speech(pcm)), messages.End(f"{n}"))
        await desk.ended(*map(str, range(4)))
        assert [heard(desk, f"{n}")[1] for n in range(4)] == [
            [Transcript(text, final=True, understood=True, language="en")] for text in expected
        ]


@pytest.mark.parametrize(("kind", "seconds", "more_s"), [("moonshine", 1, 0.5), ("moonshine", 2, 0), ("whisper", 1, 0)])
def test_moonshine_gets_silence_after_a_short_clip(
    kind: str, seconds: float, more_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, pcm = ears(MAKERS[kind](tmp_path)), speech(seconds, 3)
    taken: list[np.ndarray] = []
    monkeypatch.setattr(stage._recognizer, "decode_streams", lambda streams: None)
    monkeypatch.setattr(type(stage._ears), "stream", lambda *_: Stream(taken))
    stage.transcribe([pcm])
    (wave,) = taken
    assert len(wave) == len(pcm) + more_s * MIC_RATE_HZ
    assert not wave[len(pcm) :].any()


class Stream:
    """A stream of the library that keeps the sound."""

    def __init__(self, taken: list[np.ndarray]) -> None:
        self._taken = taken
        self.result = SimpleNamespace(text="", tokens=(), timestamps=(), durations=(), ys_log_probs=(), lang="")

    def accept_waveform(self, rate_hz: int, wave: np.ndarray) -> None:
        self._taken.append(wave)


async def test_words_come_while_the_user_speaks(folder: Path) -> None:
    stage, pcm, half = ears(folder), speech(4, 3), 2 * MIC_RATE_HZ
    stage._clock = ticking(0.0)  # it costs nothing
    async with working(stage) as desk:
        desk.put(opened("a", "ears", live=True))
        for part in range(2):
            desk.put(messages.Feed("a", Speech(pcm[part * half : (part + 1) * half])))
            await until(lambda part=part: len(heard(desk, "a")[0]) > part)
        assert heard(desk, "a")[0] == [alone(stage, pcm[:half]), alone(stage, pcm)]
        desk.put(messages.Close("a"))


async def test_moonshine_s_tokens_are_read_from_the_publisher_s_file(tmp_path: Path) -> None:
    theirs, ours, pcm = tiny_clip_ears.merged_moonshine(tmp_path / "a-en"), tmp_path / "b-en", speech(3, 7)
    shutil.copytree(theirs, ours)
    lines = (ours / "tokens.txt").read_text("utf-8").splitlines()
    tokens = [base64.b64decode(line.split()[0]).replace(b" ", "▁".encode()) for line in lines]
    (ours / "tokens.txt").unlink()
    tokenizer_bin(ours / "tokenizer.bin", tokens)
    stage = ears(ours)
    assert stage.info.facets.heard_languages == ("en",)
    assert alone(stage, pcm) == alone(ears(theirs), pcm) != ""
    cut("tokenizer.bin")(ours)
    with pytest.raises(WeightsError, match=r"tokenizer\.bin is not a Moonshine tokenizer or is incomplete"):
        ears(ours)


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
                desk.put(messages.Feed("a", piece))
                await until(lambda steps=steps: desk.worker.steps > steps)
            desk.put(messages.End("a"))
            await desk.ended("a")
            assert heard(desk, "a")[1][0].text == alone(stage, speech(12, 5))
        counts.append(len(counting.batches))
    assert counts[0] == 39, "after .85 seconds, every .3 seconds, and at the end"
    assert counts[1] <= 5


async def test_all_who_end_together_are_heard_in_one_batch_each_for_themselves(ctc: Path) -> None:
    stage = ears(ctc)
    said = [speech(1 + seed / 10, seed) for seed in range(8)]
    expected = [alone(stage, pcm) for pcm in said]
    stage._recognizer = counting = Counting(stage._recognizer)
    async with working(stage, max_batch=16) as desk:
        for n, pcm in enumerate(said):
            desk.put(opened(f"{n}", "ears", live=True), messages.Feed(f"{n}", Speech(pcm)), messages.End(f"{n}"))
        await desk.ended(*map(str, range(8)))
        assert [heard(desk, f"{n}")[1][0].text for n in range(8)] == expected
    assert max(counting.batches) == 8


@pytest.mark.parametrize("samples", [0, 5, 1500, 30_000])
async def test_silence_and_what_is_too_short_are_not_understood(folder: Path, samples: int) -> None:
    async with working(ears(folder)) as desk:
        told = await spoken(desk, "a", np.zeros(samples, np.int16))
    assert told == ([], [Transcript("", final=True, understood=False)])


@pytest.mark.parametrize("seconds", [29.0, 30.0, 62.0])
@pytest.mark.parametrize("size", [8000, 10_000_000])
async def test_a_clip_that_is_too_long_is_heard_in_parts_that_are_cut_where_it_is_quiet(
    ctc: Path, seconds: float, size: int
) -> None:
    """As it comes, or all at once: the library alone hears the same of the same parts."""
    stage, pcm = ears(ctc), speech(seconds, 6)
    for quiet_s in (23, 50):
        pcm[quiet_s * MIC_RATE_HZ : quiet_s * MIC_RATE_HZ + 4800] = 0
    async with working(stage) as desk:
        (told,) = (await spoken(desk, "a", pcm, size))[1]
    if seconds <= 29:
        assert told.text == alone(stage, pcm)
        return
    ends = [0]
    while len(pcm) - ends[-1] > 29 * MIC_RATE_HZ:
        ends.append(ends[-1] + _quietest(pcm[ends[-1] :]))
    parts = [pcm[begin:end] for begin, end in zip(ends, [*ends[1:], len(pcm)], strict=True)]
    assert told.text == " ".join(alone(stage, part) for part in parts)
    assert 23 * MIC_RATE_HZ <= ends[1] <= 23 * MIC_RATE_HZ + 4800
    assert [word.text for word in told.words] == told.text.split(), "each has its time"
    assert all(one.start_s <= other.start_s for one, other in pairwise(told.words))
    assert told.words[-1].end_s <= seconds + 0.3


def _quietest(pcm: np.ndarray) -> int:
    """Where a clip is cut: between 19.4 and 29 s, in the middle of the quietest fifth of a second."""
    first, longest = 29 * MIC_RATE_HZ - 48 * 3200, 29 * MIC_RATE_HZ
    loudness = [float((pcm[at : at + 3200].astype(np.float64) ** 2).mean()) for at in range(first, longest, 3200)]
    return first + int(np.argmin(loudness)) * 3200 + 1600


async def test_words_that_were_told_are_not_taken_back_where_a_clip_is_cut(ctc: Path) -> None:
    stage = ears(ctc)
    stage._clock = ticking(0.0)
    async with working(stage) as desk:
        partials, _ = await spoken(desk, "a", speech(40, 8))
    lengths = [len(partial.split()) for partial in partials]
    assert len(partials) > 20
    assert all(later >= sooner - 2 for sooner, later in pairwise(lengths))


async def test_a_long_recording_is_heard_a_part_at_a_time_while_another_is_heard_too(ctc: Path) -> None:
    stage = ears(ctc)
    stage._recognizer = counting = Counting(stage._recognizer)
    long = np.tile(speech(60, 3), 4)
    async with working(stage) as desk:
        desk.put(opened("long", "ears", credit=10_000), messages.Feed("long", Speech(long)), messages.End("long"))
        await until(lambda: len(counting.batches) > 2)
        await spoken(desk, "other", speech(1, 4))
        assert not desk.of(messages.End, "long"), "the other one does not wait for it"
        await desk.ended("long")
    ((told,), final) = heard(desk, "long")[1], heard(desk, "other")[1]
    assert final[0].text == alone(stage, speech(1, 4))
    assert told.words[-1].end_s > 239, "of all four minutes"
    assert len(counting.batches) > 8


@pytest.mark.parametrize("kind", ["whisper", "moonshine", "qwen3"])
async def test_ears_that_invent_words_are_not_asked_of_silence(kind: str, tmp_path: Path) -> None:
    stage = ears(MAKERS[kind](tmp_path))
    stage._recognizer = counting = Counting(stage._recognizer)
    hum = np.random.default_rng(1).normal(0, 10, 32_000).astype(np.int16)
    async with working(stage) as desk:
        assert await spoken(desk, "a", hum) == ([], [Transcript("", final=True, understood=False)])
    assert not counting.batches


def test_a_clip_may_take_as_long_as_it_lasts_many_times_over(ctc: Path) -> None:
    from engine.worker.pace import OneFrame
    from engine.worker.stage_request import StageRequest
    from tests.engine.fakes import request

    stage, req = ears(ctc), StageRequest(request(), 0, OneFrame())
    stage.open(req)
    req.pending.append(np.zeros(60 * MIC_RATE_HZ, np.int16))
    assert stage.deadline_s([req]) == 10 + 290, "of a clip that is heard in parts, one part is heard at once"


@pytest.mark.parametrize(
    ("make_", "harm", "reason"),
    [
        (tiny_ears.ctc, lambda folder: None, "asr.sherpa_offline supports NeMo, .* set use: asr.sherpa"),
        (tiny_ears.nemo_ctc, lambda folder: (folder / "tokens.txt").unlink(), "has no tokens.txt"),
        (tiny_ears.clip_zipformer, cut("tokens.txt"), r"tokens\.txt (has only \d of 12 tokens|is not a token table)"),
        (
            tiny_ears.clip_zipformer,
            lambda folder: tiny_ears.clip_zipformer(folder, T="45"),
            "asr.sherpa_offline supports NeMo, .* set use: asr.sherpa",
        ),
        (tiny_ears.nemo_transducer, lambda folder: (folder / "joiner.onnx").unlink(), "has no joiner"),
        (
            tiny_ears.nemo_ctc,
            lambda folder: tiny_ears.nemo_ctc(folder, vocab_size=""),
            "lacks the metadata vocab_size",
        ),
        (tiny_ears.nemo_ctc, lambda folder: (folder / "model.onnx").write_bytes(b"x"), "is not an ONNX file, or is"),
        (
            tiny_ears.nemo_ctc,
            cut("tokens.txt"),
            r"tokens\.txt (has only \d+ of 11 tokens|is not a token table or)",
        ),
        (tiny_clip_ears.whisper, without("tiny-decoder.onnx"), "has no decoder. Copy or download"),
        (tiny_clip_ears.whisper, without("tiny-tokens.txt"), "has no tokens.txt"),
        (tiny_clip_ears.whisper, cut("tiny-encoder.onnx"), "is not an ONNX file, or is incomplete"),
        (tiny_clip_ears.whisper, cut("tiny-decoder.onnx"), "cannot be loaded"),
        (tiny_clip_ears.whisper, lambda folder: tiny_clip_ears.whisper(folder, eot=""), "lacks the metadata eot"),
        (
            tiny_clip_ears.whisper,
            lambda folder: tiny_clip_ears.whisper(folder, all_language_codes="en"),
            "has a different number of language codes and language tokens",
        ),
        (tiny_clip_ears.moonshine, without("preprocess.onnx"), "has no preprocessor. Copy or download"),
        (tiny_clip_ears.moonshine, without("cached_decode.int8.onnx"), "has no cached_decoder. Copy or download"),
        (tiny_clip_ears.moonshine, cut("encode.int8.onnx"), "cannot be loaded"),
        (tiny_clip_ears.merged_moonshine, without("decoder_model_merged.ort"), "has no decoder. Copy or download"),
        (tiny_clip_ears.merged_moonshine, cut("encoder_model.ort"), "cannot be loaded"),
        (
            tiny_clip_ears.sense_voice,
            lambda folder: tiny_clip_ears.sense_voice(folder, inv_stddev="", lang_yue=""),
            "lacks the metadata lang_yue, inv_stddev",
        ),
        (tiny_clip_ears.paraformer, cut("model.int8.onnx"), "is not an ONNX file, or is incomplete"),
        (tiny_clip_ears.qwen3, without("conv_frontend.onnx"), "has no conv_frontend. Copy or download"),
        (tiny_clip_ears.qwen3, without("tokenizer/merges.txt"), "has no tokenizer/merges.txt. Copy or download"),
        (tiny_clip_ears.qwen3, cut("tokenizer/vocab.json"), "vocab.json is not valid JSON or is incomplete"),
        (tiny_clip_ears.qwen3, cut("decoder.int8.onnx"), "cannot be loaded"),
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
    with pytest.raises(WeightsError, match=r"set use: asr\.sherpa_offline"):
        make("asr.sherpa", "ears", 0, StageConfig(weights=found))
    with pytest.raises(WeightsError, match=r"transcribes whole clips; set use: asr\.sherpa_offline"):
        make("asr.sherpa", "ears", 0, StageConfig(weights=tiny_ears.clip_zipformer(tmp_path / "zipformer")))
    with pytest.raises(WeightsError, match=r"set use: asr\.sherpa_offline"):
        make("asr.sherpa", "ears", 0, StageConfig(weights=tiny_clip_ears.whisper(tmp_path / "whisper")))


def test_without_the_package_it_is_said_how_to_install_it(ctc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sherpa_onnx", None)
    with pytest.raises(ConfigError, match=r"asr.sherpa_offline needs the package sherpa-onnx"):
        ears(ctc)


def test_what_ears_say_of_themselves(folder: Path) -> None:
    info = ears(folder).info
    assert info.hears_only
    assert info.blocking
    assert info.facets.heard_languages == KNOWN.get(folder.parent.name[:-1], ("en", "fr"))
    assert ears(folder, languages=["en"]).info.facets.heard_languages == ("en",)


KNOWN = {"whisper": ("en", "de"), "sense voice": ("zh", "en", "ja", "ko", "yue"), "qwen3": _QWEN3_LANGUAGES}
"""Of those whose networks or makers say it; the others are what their folder's name says."""


@pytest.mark.parametrize("kind", ["whisper", "sense voice", "qwen3"])
def test_a_language_that_ears_lack_is_refused_with_those_that_they_know(kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"options\.languages: this model does not support 'xx' \(supported: .*en.*\)"
    ):
        ears(MAKERS[kind](tmp_path), languages=["xx"])


@pytest.mark.parametrize(
    ("kind", "argument", "one", "many"),
    [("whisper", "language", "de", ""), ("sense voice", "language", "ja", "auto")],
)
def test_one_language_is_what_is_listened_for_and_of_many_the_ears_find_out(
    kind: str, argument: str, one: str, many: str, tmp_path: Path
) -> None:
    folder = MAKERS[kind](tmp_path)
    assert ears(folder, languages=[one])._ears.arguments[argument] == one
    assert ears(folder, languages=[f"{one}-XX"])._ears.arguments[argument] == one
    assert ears(folder)._ears.arguments[argument] == many


@pytest.mark.parametrize(("lang", "language"), [("<|ja|>", "ja"), ("<|nospeech|>", ""), ("", "")])
def test_a_detected_language_is_the_transcripts(lang: str, language: str, tmp_path: Path) -> None:
    result = SimpleNamespace(text="hai", tokens=[], timestamps=[], durations=[], ys_log_probs=[], lang=lang)
    assert ears(MAKERS["sense voice"](tmp_path))._spoken(result).language == language


async def test_qwen3_is_told_the_only_language_and_reads_it(tmp_path: Path) -> None:
    folder, pcm = tiny_clip_ears.qwen3(tmp_path), speech(3, 2)
    english, any_ = ears(folder, languages=["en"]), ears(folder)
    assert english._ears.options == {"language": "English"}
    assert alone(english, pcm) != alone(any_, pcm), "its prompt is longer"
