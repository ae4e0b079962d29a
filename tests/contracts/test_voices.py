"""Every voice that runs here: whatever it is given to say, and whoever leaves, it says what it can and serves on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import soundfile

from engine import Engine, EngineSpec, StageSpec, describe
from engine.chunk import Audio, Text
from engine.core import SPEAKER_RATE_HZ
from engine.deployment.config import ChunkSpec
from engine.deployment.describe import stages_of
from engine.deployment.model_catalog import catalogue
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from tests.contracts.voices import CLAUSES, CLONING, PACKAGES, VoiceOf, small_voice
from tests.engine.fakes import only, opened, request, until, working
from tests.engine.worker.stages.tts.saying import TEXT, failure, said, whole

Lines = Callable[[str], tuple[VoiceOf, list[Any]]]
CHINESE = "今天天气很好，我们去公园玩吧。" * 20


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[VoiceOf, list[Any]]]:
    """A voice and its stages, by what it uses; made when it is first wanted."""

    @cache
    def made(use: str) -> tuple[VoiceOf, list[Any]]:
        voice = small_voice(use, tmp_path_factory.mktemp("voice"))
        return voice, voice.stages()

    return made


@pytest.fixture(scope="module", params=PACKAGES)
def voice(request: pytest.FixtureRequest, lines: Lines) -> VoiceOf:
    return lines(request.param)[0]


@pytest.fixture(scope="module")
def line(voice: VoiceOf, lines: Lines) -> list[Any]:
    """The voice's stages: one, or those of its family."""
    return lines(voice.use)[1]


@pytest.fixture(scope="module", params=CLAUSES)
def stage(request: pytest.FixtureRequest, lines: Lines) -> Any:
    """A voice that speaks clause by clause, and knows what it has said. One that draws frames beside tokens need not
    find the end of a text, and estimates how far it has come."""
    return lines(request.param)[1][0]


@pytest.fixture(scope="module", params=CLONING)
def cloning(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VoiceOf:
    """One whose options may name recordings."""
    return small_voice(request.param, tmp_path_factory.mktemp("cloning"), clones=True)


@pytest.mark.parametrize("text", ["", "😀" * 300, "... !!!", " \n\n", "\0", "\ud800"])
async def test_a_text_without_a_word_is_silent_and_no_error(line: list[Any], text: str) -> None:
    async with working(*line) as desk:
        assert await said(desk, "a", text) == []
        assert failure(desk, "a") == ""
        assert len(whole(await said(desk, "b", "hello"))) > 0


async def test_words_among_three_hundred_emoji_are_said(stage: Any) -> None:
    text = "hello " + "😀" * 300 + " world"
    async with working(stage) as desk:
        found = await said(desk, "a", text)
    assert len(whole(found)) > 0
    assert found[-1].marks[-1] == (len(whole(found)), len(text))


async def test_chinese_from_an_english_voice_ends_and_the_next_one_is_served(stage: Any) -> None:
    async with working(stage) as desk:
        await said(desk, "a", CHINESE, max_audio_s=10.0)
        assert failure(desk, "a") == "The voice cannot speak this answer. It supports en."
        assert len(whole(await said(desk, "b", "hello"))) > 0


async def test_of_an_answer_in_two_languages_what_is_english_is_said(line: list[Any]) -> None:
    async with working(*line) as desk:
        found = await said(desk, "a", f"{CHINESE[:15]} Hello world.")
        assert failure(desk, "a") == ""
        assert len(whole(found)) > 0


async def test_a_text_of_a_hundred_thousand_characters_without_an_end_is_said_as_far_as_it_may_be(
    voice: VoiceOf, line: list[Any]
) -> None:
    calls, stage = 0, line[0]
    say = stage.step

    def counted(reqs: Any) -> Any:
        nonlocal calls
        calls += 1
        return say(reqs)

    stage.step = counted
    try:
        async with working(*line) as desk:
            found = await said(desk, "a", ("hello world " * 9000)[:100_000], max_audio_s=5.0)
    finally:
        del stage.step
    length = len(whole(found))
    assert length == 5 * SPEAKER_RATE_HZ if voice.use in CLAUSES else 0 < length <= 5 * SPEAKER_RATE_HZ
    assert calls < 500, "what is beyond the longest answer is not computed"


@pytest.mark.parametrize("name", ["nobody", "hf://kyutai/tts-voices/casual.wav", "http://127.0.0.1/a.wav", "../alba"])
async def test_a_voice_that_there_is_not_is_one_error(line: list[Any], name: str) -> None:
    async with working(*line) as desk:
        await said(desk, "a", "hello", voice=name)
        assert failure(desk, "a").startswith(f"There is no voice '{name}'")
        assert len(whole(await said(desk, "b", "hello"))) > 0


async def test_a_voice_is_asked_for_a_language_that_it_has_not(voice: VoiceOf) -> None:
    with pytest.raises(ConfigError, match=r"options\.language: .* speaks .*en.*, (and no|not) ja"):
        voice.stages(language="ja")


async def test_two_at_once_are_each_what_they_are_alone(line: list[Any]) -> None:
    other = "Three two one? " + TEXT
    async with working(*line) as desk:
        alone = [whole(await said(desk, "a", TEXT)), whole(await said(desk, "b", other))]
        both = await asyncio.gather(said(desk, "c", TEXT), said(desk, "d", other))
    for one, found in zip(alone, both, strict=True):
        assert len(one) == len(whole(found))
        assert np.allclose(one, whole(found), rtol=0, atol=1e-4)


async def test_marks_lead_through_the_text_to_its_end(stage: Any) -> None:
    async with working(stage) as desk:
        found = await said(desk, "a", TEXT)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (len(whole(found)), len(TEXT))


async def test_who_leaves_gets_no_further_sample_and_gives_the_slot_back(line: list[Any]) -> None:
    async with working(*line) as desk:
        desk.put(
            opened("a", *desk.worker.free, credit=10_000), messages.Feed("a", Text(TEXT * 20, 0)), messages.End("a")
        )
        await until(lambda: bool(desk.of(messages.Emit, "a")))
        desk.put(messages.Close("a"))
        given = len(desk.of(messages.Emit, "a"))
        await until(lambda: [*desk.worker.free.values()] == [stage.info.slots for stage in line])
        assert len(desk.of(messages.Emit, "a")) == given
        assert not desk.of(messages.Failed, "a")


async def test_twenty_who_leave_do_not_starve_the_next(stage: Any) -> None:
    """Steps are counted: of those who left, the one that was on its way is all that is made."""
    async with working(stage) as desk:
        await said(desk, "alone", "hello ")
        steps = desk.worker.steps
        for n in range(20):
            desk.put(opened(f"{n}", "voice", credit=10_000), messages.Feed(f"{n}", Text(TEXT, 0)), messages.End(f"{n}"))
        await until(lambda: desk.worker.in_step)
        desk.put(*(messages.Close(f"{n}") for n in range(20)))
        before = desk.worker.steps
        found = await said(desk, "next", "hello ")
        assert len(whole(found)) > 0
        assert desk.worker.steps - before <= steps + 5, "a library may cut the same sound into more pieces"
        await until(lambda: desk.worker.free["voice"] == stage.info.slots)


@pytest.mark.slow
@pytest.mark.parametrize("use", CLAUSES)
async def test_a_voice_that_is_killed_in_mid_answer_says_the_rest(use: str, lines: Lines) -> None:
    """Its process is; without `workers:` it has one of its own, which leaves the thinker's words alone.

    Nothing is cut short for a listener who waits for the next process: clauses would differ from the whole answer's.
    """
    voice = lines(use)[0]
    stages = (
        StageSpec(use="script.thinker", name="thinker"),
        StageSpec(use=voice.use, name="voice", weights=str(voice.folder)),
    )
    asked = request(f"say: {TEXT}")
    spec = EngineSpec(stages=stages, empty_s=60.0, chunks=ChunkSpec(hurry=False))
    async with Engine(spec) as engine:
        async with engine.open(asked) as chunks:
            full = whole(only(Audio, [chunk async for chunk in chunks]))
        found, killed = list[Audio](), False
        async with engine.open(msgspec.structs.replace(asked, lead_s=0.2)) as chunks:
            async for chunk in chunks:
                found += [chunk] if isinstance(chunk, Audio) else []
                if len(found) == 2 and not killed:
                    killed = True
                    (member,) = engine._fleet.pools["voice"].members()
                    os.kill(member.replica.host.hello.result().pid, signal.SIGKILL)
    assert killed
    assert len(whole(found)) == len(full)
    assert np.allclose(whole(found), full, rtol=0, atol=1e-5)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (len(full), len(TEXT.strip()))


@pytest.mark.parametrize(
    "name", ["kokoro-en", "kokoro-int8", "phonon", "pocket", "pocket-de", "qwen3-tts-1.7b", "qwen3-tts-1.7b-base"]
)
def test_a_voice_that_is_not_on_this_machine_is_one_sentence_with_the_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    use = catalogue()[name].use
    voice = (StageSpec(use=use, name="voice", weights=name),) if "." in use else stages_of(use, name, {})
    stages = (StageSpec(use="script.thinker", name="thinker"), *voice)
    with pytest.raises(WeightsError, match=f"{name} is not on this machine; `parley pull {name}` downloads it"):
        describe(EngineSpec(stages=stages))


RATE_HZ = 24_000
CLONE = {"name": "anna", "reference": "anna.wav", "consent": "A test's own noise."}


def _noise(seconds: float) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, round(seconds * RATE_HZ)).astype(np.float32)


def _broken(wave: np.ndarray) -> np.ndarray:
    wave[1000] = np.nan
    return wave


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda path: soundfile.write(path, 0 * _noise(12), RATE_HZ), "is silent; record the speaker louder"),
        (
            lambda path: soundfile.write(path, _noise(600), RATE_HZ),
            "is 600.0 s long; cut it to 3 to 30 s",
        ),
        (lambda path: soundfile.write(path, _noise(1), RATE_HZ), "is 1.0 s long; cut it to 3 to 30 s"),
        (
            lambda path: soundfile.write(path, _broken(_noise(12)), RATE_HZ, subtype="FLOAT"),
            "has samples that are not finite numbers; save it again as 16-bit WAV",
        ),
        (lambda path: path.write_bytes(b"RIFF is all it says"), "it is not a readable audio file"),
        (lambda path: path.write_bytes(b""), "it is not a readable audio file"),
        (lambda path: path.mkdir(), "it is not a readable audio file"),
        (lambda path: None, "the file does not exist"),
    ],
)
def test_a_recording_of_which_no_voice_can_be_made_is_one_sentence(
    cloning: VoiceOf, tmp_path: Path, write: Callable[[Path], Any], reason: str
) -> None:
    path = tmp_path / "anna.wav"
    write(path)
    with pytest.raises(ConfigError, match=reason) as raised:
        cloning.stages(clones=[{"name": "anna", "reference": str(path), "consent": "A test's own noise."}])
    assert "voice anna" in str(raised.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"consent": "  "}, r"options.clones\[0\].consent: describe in a sentence how the speaker consented"),
        (
            {"reference": "hf://some/voice.wav"},
            r"options.clones\[0\].reference: 'hf://some/voice.wav' is a URL; name a local file",
        ),
        ({"name": ""}, r"options.clones\[0\].name: '' is empty or the name of another voice"),
    ],
)
def test_nobody_is_cloned_without_a_name_a_file_and_consent(
    cloning: VoiceOf, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        cloning.stages(clones=[CLONE | change])


def test_a_clone_has_a_name_that_no_other_voice_has(cloning: VoiceOf) -> None:
    clones = [CLONE | {"name": "alba"}] if cloning.use in CLAUSES else [CLONE, CLONE]
    with pytest.raises(ConfigError, match=rf"options.clones\[{len(clones) - 1}\].name: .* the name of another voice"):
        cloning.stages(clones=clones)


async def test_music_is_cloned_like_anything_else_and_says_something(cloning: VoiceOf, tmp_path: Path) -> None:
    times = np.arange(12 * 44_100) / 44_100
    music = sum(np.sin(2 * np.pi * hz * times) for hz in (220, 277, 330)) / 4
    soundfile.write(tmp_path / "music.flac", np.stack([music, music], axis=1), 44_100)
    clone = {"name": "band", "reference": str(tmp_path / "music.flac"), "consent": "A test's own music."}
    async with working(*cloning.stages(clones=[clone])) as desk:
        found: list[Audio] = await said(desk, "a", "hello", voice="band")
    assert len(whole(found)) > 0
