"""Voices of sherpa-onnx: the library itself, with networks of a few nodes whose every token is a tone of its own."""

from __future__ import annotations

import _socket
import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from engine import Engine, EngineSpec, Message, Request, StageSpec, TextPart
from engine.audio.resampler import resample
from engine.chunk import Audio, Checkpoint, Text, VoiceText, kinds
from engine.core import SPEAKER_RATE_HZ
from engine.deployment.config import ChunkSpec
from engine.errors import ConfigError, RequestError, WeightsError
from engine.ipc import messages
from engine.worker.pace import OneFrame
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.tts.clauses import Clauses
from tests.engine.fakes import Desk, only, opened, request, until, working
from tests.engine.worker.stages.tts.saying import TEXT, failure, in_pieces, said, said_behind, whole

sherpa_onnx = pytest.importorskip("sherpa_onnx")
pytest.importorskip("onnx")

from tests.engine.worker.stages.tts import tiny_voices  # noqa: E402

MAKERS: dict[str, Callable[[Path], Path]] = {
    "vits": tiny_voices.vits,
    "kokoro": tiny_voices.kokoro,
    "kitten": lambda folder: tiny_voices.kokoro(folder, family="kitten"),
    "matcha": tiny_voices.matcha,
}


def config_of(folder: Path | None, **options: Any) -> StageConfig:
    return StageConfig(weights=folder, options=options, slots=32)


def voice(folder: Path | None, **options: Any) -> Any:
    return make("tts.sherpa", "voice", 0, config_of(folder, **options))


@pytest.fixture(scope="module", params=MAKERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice of each family."""
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def vits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_voices.vits(tmp_path_factory.mktemp("vits"))


def said_as(stage: Any, text: str) -> list[str]:
    """The clauses of a lowercase text, as the library gets them."""
    cutter = Clauses(stage.words, phrases=stage.phrases)
    clauses = [*cutter.feed(text, 0), cutter.flush()]
    return [clause.text.strip() for clause in clauses if clause is not None]


def expected(stage: Any, text: str, number: int = 0, speed: float = 1.0) -> np.ndarray:
    """What the library makes of each clause when it is called for it, at the speaker's rate."""
    cutter = Clauses(stage.words, phrases=stage.phrases)
    clauses = [*cutter.feed(text, 0), cutter.flush()]
    sounds: list[np.ndarray] = []
    for clause in clauses:
        assert clause is not None
        words = clause.text.lower().replace(";", ",").strip()
        made = stage._tts.generate(words, stage._wanted(words, number, speed))
        sounds.append(resample(np.array(made.samples, np.float32), made.sample_rate, SPEAKER_RATE_HZ))
    return np.concatenate(sounds)


async def test_streamed_sound_is_the_librarys_own_for_the_same_clauses(folder: Path) -> None:
    stage = voice(folder)
    last = len(stage.info.facets.voices) - 1
    async with working(stage) as desk:
        assert np.array_equal(whole(await said(desk, "a", TEXT)), expected(stage, TEXT))
        id = stage.info.facets.voices[last].id
        fast = whole(await said(desk, "b", TEXT, voice=id, speed=2.0))
        assert np.array_equal(fast, expected(stage, TEXT, last, 2.0))
        assert len(fast) < 0.7 * len(expected(stage, TEXT))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two people whose recordings lie there."""
    folder, clones = tmp_path_factory.mktemp("recorded"), list[dict[str, str]]()
    for name, loudness in (("anna", 0.2), ("bela", 0.02)):
        noise = np.random.default_rng(0).normal(0, loudness, 4 * 24_000).clip(-1, 1)
        soundfile.write(folder / f"{name}.wav", noise, 24_000)
        consent = "A test's own noise, which agreed."
        clones.append(
            {"name": name, "reference": str(folder / f"{name}.wav"), "consent": consent, "text": "hello world"}
        )
    return {"clones": clones}


@pytest.fixture(scope="module")
def zipvoice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_voices.zipvoice(tmp_path_factory.mktemp("zipvoice"))


async def test_zipvoice_speaks_as_each_recording_does_and_as_the_library_does(
    zipvoice: Path, recorded: dict[str, Any]
) -> None:
    stage = voice(zipvoice, language="en", **recorded)
    assert [one.id for one in stage.info.facets.voices] == ["anna", "bela"]
    assert stage.info.facets.languages == ("en", "zh")
    spoken, text = list[np.ndarray](), "hello world, this is a test of the voice."
    async with working(stage) as desk:
        for number, name in enumerate(("anna", "bela")):
            sound = whole(await said(desk, name, text, voice=name))
            wanted = sherpa_onnx.GenerationConfig()
            wanted.reference_audio, wanted.reference_sample_rate = stage._references[number], 24_000
            wanted.reference_text, wanted.num_steps = "hello world", 4
            made = [np.array(stage._tts.generate(one, wanted).samples, np.float32) for one in said_as(stage, text)]
            assert np.allclose(sound, np.concatenate(made).clip(-1, 1), rtol=0, atol=1e-5), (
                "noise is left over in its last digits"
            )
            spoken.append(sound)
    assert np.abs(spoken[0]).max() > 0.01
    assert np.abs(spoken[0] - spoken[1]).max() > 0.001


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"text": " "}, r"options.clones\[0\].text: add the transcript of .*anna.wav"),
        ({"consent": ""}, r"options.clones\[0\].consent: describe in a sentence how the speaker consented"),
        (
            {"reference": "none.wav"},
            "The reference none.wav for the voice anna cannot be used: the file does not exist",
        ),
    ],
)
def test_zipvoice_clones_nobody_without_consent_a_recording_and_its_text(
    zipvoice: Path, recorded: dict[str, Any], change: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        voice(zipvoice, clones=[recorded["clones"][0] | change])


def test_zipvoice_without_a_recording_says_what_it_needs(zipvoice: Path) -> None:
    with pytest.raises(ConfigError, match=r"options.clones: the model in .* has no built-in voice; add a recording"):
        voice(zipvoice)


def test_other_voices_clone_nobody(vits: Path, recorded: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"options.clones: the voice in .* cannot clone voices; remove options.clones"
    ):
        voice(vits, **recorded)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vocos_24khz.onnx", r"has no vocos\*.onnx. Copy it next to the other files"),
        ("tokens.txt", "has no tokens.txt"),
        ("lexicon.txt", "has no lexicon.txt"),
    ],
)
def test_a_folder_of_zipvoice_that_is_not_whole_is_one_sentence(
    tmp_path: Path, recorded: dict[str, Any], name: str, reason: str
) -> None:
    (tiny_voices.zipvoice(tmp_path) / name).unlink()
    with pytest.raises(WeightsError, match=reason):
        voice(tmp_path, **recorded)


async def test_pocket_speaks_as_each_recording_does_and_as_the_library_does(
    tmp_path: Path, recorded: dict[str, Any]
) -> None:
    stage = voice(tiny_voices.pocket(tmp_path), **recorded)
    assert [one.id for one in stage.info.facets.voices] == ["anna", "bela"]
    assert stage.info.facets.languages == ("en",)
    spoken, text = list[np.ndarray](), "Hello world, this is a test of the voice."
    async with working(stage) as desk:
        for number, name in enumerate(("anna", "bela")):
            sound = whole(await said(desk, name, text, voice=name))
            wanted = sherpa_onnx.GenerationConfig()
            wanted.reference_audio, wanted.reference_sample_rate = stage._references[number], 24_000
            made = [np.array(stage._tts.generate(one, wanted).samples, np.float32) for one in said_as(stage, text)]
            assert np.allclose(sound, np.concatenate(made).clip(-1, 1), rtol=0, atol=1e-5), "but for the noise"
            spoken.append(sound)
        assert np.abs(spoken[0] - spoken[1]).max() > 0.001
        assert await said(desk, "c", "今天天气很好", voice="anna") == []
        assert failure(desk, "c") == "The voice cannot speak this answer. It supports en."


async def test_marks_lead_through_the_text_to_its_end(folder: Path) -> None:
    async with working(voice(folder)) as desk:
        found = await said(desk, "a", TEXT)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (len(whole(found)), len(TEXT))
    assert len(marks) >= 15, "words have marks of their own"
    assert all(TEXT[:characters].endswith((" ", *",.;!?abcdefghijklmnopqrstuvwxyz")) for _, characters in marks)


async def test_a_sound_begins_before_the_text_has_ended(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        desk.put(opened("a", "voice"), *(messages.Feed("a", piece) for piece in in_pieces(TEXT[:45])))
        await until(lambda: bool(desk.of(messages.Emit, "a")))
        desk.put(messages.Close("a"))


async def test_many_answers_at_once_are_each_their_own(vits: Path) -> None:
    stage = voice(vits)
    texts = [f"{' '.join(TEXT.split()[n:])} " for n in range(6)]
    async with working(stage, max_batch=16) as desk:
        found = await asyncio.gather(*(said(desk, f"{n}", text) for n, text in enumerate(texts)))
    for text, audio in zip(texts, found, strict=True):
        assert np.array_equal(whole(audio), expected(stage, text))


async def test_english_numbers_are_spoken_though_no_lexicon_has_them(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        digits, words = await said(desk, "a", "1, 2, 3. "), await said(desk, "b", "one, two, three. ")
    assert len(whole(words)) > 1000
    assert np.array_equal(whole(digits), whole(words))


@pytest.mark.parametrize(
    ("language", "text"),
    [("German", "um vierzehn Uhr dreißig"), ("French", "um quatorze heures trente"), ("Dutch", "um 14:30")],
)
def test_numbers_are_words_in_the_languages_with_rules(tmp_path: Path, language: str, text: str) -> None:
    pytest.importorskip("unicode_rbnf")
    assert voice(tiny_voices.vits(tmp_path, language=language)).wording("um 14:30") == text


async def test_what_has_no_word_in_the_lexicon_is_left_out_and_the_rest_said(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        with_names = whole(await said(desk, "a", "hello Kowalski world"))
        assert np.array_equal(with_names, whole(await said(desk, "b", "hello world")))


async def test_a_text_of_which_nothing_can_be_said_ends_with_one_error(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        assert await said(desk, "a", "Kowalski Nowak") == []
        assert failure(desk, "a") == "The voice cannot speak this answer. It supports en."
        assert len(whole(await said(desk, "b", "hello"))) > 0


async def test_an_answer_of_which_nothing_can_be_said_does_not_wait_for_its_end(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        desk.put(opened("a", *desk.worker.free, credit=10_000))
        desk.put(*(messages.Feed("a", Text("Это длинный рассказ. ", 21 * n)) for n in range(40)))
        await desk.ended("a")
        assert failure(desk, "a") == "The voice cannot speak this answer. It supports en."


async def test_an_answer_that_goes_over_to_another_script_ends_behind_what_was_said(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        desk.put(opened("a", *desk.worker.free, credit=10_000), messages.Feed("a", Text(TEXT, 0)))
        desk.put(*(messages.Feed("a", Text("Это длинный рассказ. ", len(TEXT) + 21 * n)) for n in range(40)))
        await desk.ended("a")
        assert failure(desk, "a") == ""
        assert any("voice.cut" in marks.marks for marks in desk.of(messages.Marks, "a"))
        heard = whole(only(Audio, [emit.chunk for emit in desk.of(messages.Emit, "a")]))
        assert len(heard) >= len(whole(await said(desk, "b", TEXT)))


async def test_a_text_of_a_hundred_thousand_characters_without_an_end_is_said_in_pieces(vits: Path) -> None:
    stage = voice(vits)
    calls, generate = [], stage._generate
    stage._generate = lambda text, *rest: (calls.append(text), generate(text, *rest))[1]
    async with working(stage) as desk:
        found = await said(desk, "a", ("hello world " * 9000)[:100_000], max_audio_s=30.0)
    assert len(whole(found)) == 30 * SPEAKER_RATE_HZ
    assert sum(map(len, calls)) < 3000, "what is beyond the longest answer is not computed"
    assert max(len(audio.wave) for audio in found) < 15 * SPEAKER_RATE_HZ


async def test_an_answer_ends_at_its_longest(vits: Path) -> None:
    async with working(voice(vits)) as desk:
        assert len(whole(await said(desk, "a", TEXT, max_audio_s=0.5))) == SPEAKER_RATE_HZ // 2


class Slow:
    """The library, whose every piece waits to be let go."""

    def __init__(self, tts: Any) -> None:
        self.tts, self.begun, self.go = tts, threading.Semaphore(0), threading.Semaphore(0)
        self.calls = 0

    def generate(self, text: str, wanted: Any, take: Callable[[Any, float], int]) -> Any:
        self.calls += 1

        def held(wave: Any, share: float) -> int:
            self.begun.release()
            self.go.acquire()
            return take(wave, share)

        return self.tts.generate(text, wanted, held)


@asynccontextmanager
async def slowly(folder: Path) -> AsyncGenerator[tuple[Desk, Slow]]:
    stage = voice(folder)
    stage._tts = slow = Slow(stage._tts)
    try:
        async with working(stage, max_batch=32) as desk:
            yield desk, slow
    finally:
        slow.go.release(1000)


SENTENCES = "We go. It is. " * 3
"""One clause of six sentences, as the library sees it, where it is not the first."""


async def test_who_leaves_in_mid_clause_gets_no_further_sample_and_the_call_ends_with_the_sentence(vits: Path) -> None:
    async with slowly(vits) as (desk, slow):
        stage: Any = desk.worker.stages["voice"]
        stage.words = ChunkSpec(first=40, growth=1, steady=40)
        desk.put(opened("a", "voice"), messages.Feed("a", Text(SENTENCES, 0)), messages.End("a"))
        await until(lambda: slow.begun.acquire(blocking=False))
        desk.put(messages.Close("a"))
        slow.go.release()
        await until(lambda: desk.worker.free["voice"] == stage.info.slots)
        assert desk.of(messages.Emit, "a") == []
        assert not slow.begun.acquire(blocking=False), "five sentences were not begun"


async def test_twenty_who_leave_do_not_starve_the_next(vits: Path) -> None:
    async with slowly(vits) as (desk, slow):
        for n in range(20):
            desk.put(opened(f"{n}", "voice"), messages.Feed(f"{n}", Text(TEXT, 0)), messages.End(f"{n}"))
        await until(lambda: slow.begun.acquire(blocking=False))
        desk.put(*(messages.Close(f"{n}") for n in range(40)))
        desk.put(opened("next", "voice"), messages.Feed("next", Text("hello ", 0)), messages.End("next"))
        slow.go.release(2)
        await desk.ended("next")
        assert slow.calls == 2, "of those who left, the clause that was on its way alone was computed"
        assert len(desk.of(messages.Emit, "next")) > 0
        await until(lambda: desk.worker.free["voice"] == desk.worker.stages["voice"].info.slots)


async def test_another_replica_goes_on_at_the_clause_that_was_on_its_way(vits: Path) -> None:
    stage = voice(vits)
    async with working(stage) as desk:
        full = whole(await said(desk, "a", TEXT))
        emits: list[messages.Emit] = desk.of(messages.Emit, "a")
        left = [chunk for emit in emits for chunk in emit.kept if isinstance(chunk, Checkpoint)]
        assert len(left) > 1
        for lost in range(len(left)):
            before = [emit.chunk for emit in emits[: _emits_until(emits, left[lost]) + 1]]
            given = len(whole(only(Audio, before)))
            rest = await said_behind(desk, f"again{lost}", left[lost], given)
            assert np.array_equal(rest, full[given:]), f"behind clause {lost}"


async def test_another_replica_that_has_only_unknown_words_left_to_say_ends_well(vits: Path) -> None:
    text = "Hello world, this is a test. Kowalski Nowak Kowalski Nowak Kowalski Nowak."
    left = Checkpoint({"samples": 20_000, "said": 29, "count": 2, "until": len(text)}, "voice", {"audio": 20_000})
    async with working(voice(vits)) as desk:
        resume = messages.Resume({"audio": 20_000}, {}, None, (left,))
        desk.put(messages.Open("a", opened("a").request, ("voice",), 10_000, resume=resume))
        desk.put(messages.Feed("a", Text(text, 0)), messages.End("a"))
        await desk.ended("a")
        assert failure(desk, "a") == ""


async def test_another_replica_ends_that_clause_where_it_was_to_end(vits: Path) -> None:
    """Though it would have cut the text elsewhere: the first one may have been in a hurry."""
    hasty, calm = voice(vits, first_words=3), voice(vits, first_words=9)
    async with working(hasty) as desk:
        await said(desk, "a", TEXT)
        left = next(chunk for emit in desk.of(messages.Emit, "a") for chunk in emit.kept)
    async with working(calm) as desk:
        desk.put(
            messages.Open("b", opened("b").request, ("voice",), 10_000, resume=messages.Resume({}, {}, None, (left,)))
        )
        desk.put(messages.Feed("b", Text(TEXT, 0)), messages.End("b"))
        await desk.ended("b")
        again = next(chunk for emit in desk.of(messages.Emit, "b") for chunk in emit.kept)
    assert isinstance(left, Checkpoint)
    assert isinstance(again, Checkpoint)
    assert again.state["until"] == left.state["until"] == len("Hello world, ")


def _emits_until(emits: Sequence[messages.Emit], checkpoint: Checkpoint) -> int:
    return next(n for n, emit in enumerate(emits) if checkpoint in emit.kept)


def asked(text: str, **fields: Any) -> Request:
    """What the script's thinker answers with this text."""
    return Request(id="r", session="s", messages=(Message("user", (TextPart(f"say: {text}"),)),), **fields)


def engine_of(folder: Path, **fields: Any) -> Engine:
    stages = (
        StageSpec(use="script.thinker", name="thinker"),
        StageSpec(use="tts.sherpa", name="voice", weights=str(folder)),
    )
    return Engine(EngineSpec(stages=stages, empty_s=20.0, **fields))


async def test_a_given_text_is_spoken_as_it_stands(vits: Path) -> None:
    stage = voice(vits)
    async with engine_of(vits, launcher="inline") as engine:
        request = Request(id="r", session="s", messages=(), say=TEXT, wants=frozenset({"audio"}))
        async with engine.open(request) as chunks:
            sound = whole(only(Audio, [chunk async for chunk in chunks]))
        assert engine.model.voice_ids == ("0", "1", "2")
    assert np.array_equal(sound, expected(stage, TEXT))


async def test_an_unknown_voice_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    async with working(voice(tiny_voices.kokoro(tmp_path))) as desk:
        await said(desk, "a", "hello", voice="af_hart")
        assert failure(desk, "a") == "There is no voice 'af_hart' (did you mean 'af_heart'?)."


async def test_nothing_that_is_said_reaches_the_log(vits: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with working(voice(vits)) as desk:
        await said(desk, "a", "hello Kowalski. \n Nowak\nworld. Kowalski")
    assert "owalski" not in (err := capfd.readouterr().err).lower()
    assert "nowak" not in err.lower()


def test_what_a_voice_says_of_itself(tmp_path: Path) -> None:
    info = voice(tiny_voices.kokoro(tmp_path), voice="bm_george").info
    assert info.takes == kinds(Text, VoiceText)
    assert [(one.id, one.name, one.language) for one in info.facets.voices] == [
        ("bm_george", "George, a man", "en-GB"), ("af_heart", "Heart, a woman", "en-US"),
        ("zf_xiaoxiao", "Xiaoxiao, a woman", "en-US"),
    ]  # fmt: skip
    assert info.facets.languages == ("en-US",)
    assert (info.blocking, info.batch) == (True, 1)


async def test_the_voice_of_the_configuration_speaks_where_nobody_is_named(tmp_path: Path) -> None:
    stage = voice(tiny_voices.kokoro(tmp_path), voice="bm_george")
    async with working(stage) as desk:
        assert np.array_equal(whole(await said(desk, "a", "hello")), expected(stage, "hello", 1))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"voice": "nobody"}, r"options\.voice: there is no voice 'nobody' .known: af_heart"),
        ({"language": "de"}, "options.language: the voice in .* speaks en-US, not de"),
        ({"first_words": 0}, "options.first_words: must be 1 to 100"),
        ({"fist_words": 3}, "options.fist_words: unknown key .did you mean 'first_words'"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        voice(tiny_voices.kokoro(tmp_path), **options)


def test_without_the_package_it_is_said_how_to_install_it(vits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sherpa_onnx", None)
    with pytest.raises(ConfigError, match=r"needs the package sherpa-onnx: .+ pip install .+\[local\]"):
        voice(vits)


def test_a_voice_describes_itself_without_the_package(vits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.worker.stages.tts.sherpa import STAGE

    monkeypatch.setitem(sys.modules, "sherpa_onnx", None)
    assert len(STAGE.describe(config_of(vits)).facets.voices) == 3


def test_a_network_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    folder = tiny_voices.vits(tmp_path)
    model = folder / "model.onnx"
    model.write_bytes(model.read_bytes().replace(b"Sin", b"Xin"))
    with pytest.raises(WeightsError, match=r"model\.onnx cannot be loaded .*: fetch the files again"):
        voice(folder)


def test_an_unknown_voice_is_the_requests_error(vits: Path) -> None:
    with pytest.raises(RequestError, match=r"There is no voice '7' \(known: 0, 1, 2\)"):
        voice(vits).open(StageRequest(request(voice="7"), 0, OneFrame()))


BOTH = """
import sys
from pathlib import Path
import numpy as np
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
names = ["nano.code2wav", "tts.sherpa"]
weights = {"tts.sherpa": Path(sys.argv[1])}
order = names if sys.argv[2] == "nano first" else names[::-1]
stages = [make(use, use, 0, StageConfig(weights=weights.get(use))) for use in order]
by = {stage.info.name: stage for stage in stages}
pieces = by["tts.sherpa"]._generate("hello world.", 0, 1.0, lambda: False)
print(sum(len(wave) for wave, _ in pieces))
by["nano.code2wav"].warm_up()
print("both")
"""


@pytest.mark.parametrize("order", ["nano first", "sherpa first"])
def test_its_onnx_runtime_and_nanos_live_in_one_process(vits: Path, order: str) -> None:
    """The library brings one of its own."""
    done = subprocess.run([sys.executable, "-c", BOTH, str(vits), order], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["6174", "both"], done.stderr


def test_the_library_can_reach_no_other_machine() -> None:
    """Its code names none of the system's calls for it: the guard of tests/guard sees Python's own sockets only."""
    calls = (b"connect\0", b"socket\0", b"getaddrinfo\0")
    files = [*Path(sherpa_onnx.__file__).parent.rglob("*.so*")]
    assert len(files) >= 2
    for path in files:
        code = path.read_bytes()
        assert not [call for call in calls if call in code], path
    code = Path(_socket.__file__).read_bytes()
    assert all(call in code for call in calls), "the control: a library that can names them"
