"""The voice of Pocket TTS: the library itself, with random weights."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pytest.importorskip("pocket_tts")
import torch

from engine.chunk import Text
from engine.core import Wave
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.randomness import GOLDEN
from engine.worker.stage import StageConfig
from tests.engine.fakes import opened, until, working
from tests.engine.worker.stages.tts.saying import (
    TEXT,
    check_that_another_goes_on,
    clauses_of,
    clone_of,
    failure,
    said,
    whole,
)
from tests.engine.worker.stages.tts.tiny_pocket import FRAME, RATE_HZ, pocket, recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pocket(tmp_path_factory.mktemp("pocket"))


def voice(folder: Path | None, **options: Any) -> Any:
    return make("tts.pocket", "voice", 0, StageConfig(weights=folder, options=options, slots=32))


def library_says(stage: Any, text: str, state: Any, seed: int = 0) -> np.ndarray:
    """What the library's own ``generate_audio`` makes of each clause, seeded as the stage seeds it."""
    model, sounds = stage._library._model, list[np.ndarray]()
    model.max_decoder_frames_per_call = 1  # several at once differ in the last bit
    for n, clause in enumerate(clauses_of(text)):
        torch.manual_seed((seed + n * GOLDEN) % (1 << 64))
        sounds.append(model.generate_audio(state, clause).numpy())
    return np.concatenate(sounds)


def test_the_clauses_seeds_are_the_requests_own_and_differ() -> None:
    assert len({n * GOLDEN % (1 << 64) for n in range(1000)}) == 1000


async def test_streamed_sound_is_the_librarys_own_for_the_same_clauses(folder: Path) -> None:
    stage = voice(folder)
    async with working(stage) as desk:
        for name in ("alba", "marius"):
            found = await said(desk, name, TEXT, voice=name)
            assert np.array_equal(whole(found), library_says(stage, TEXT, stage._voices[name]).clip(-1, 1))
        assert len(found) > 20, "a codec frame at a time"
        assert len(found[0].wave) <= FRAME, "the first one at once"


async def test_answers_that_take_turns_are_each_what_they_are_alone(folder: Path) -> None:
    stage = voice(folder)
    texts = [" ".join(TEXT.split()[n:]) for n in range(4)]
    alone = [library_says(stage, text, stage._voices["alba"]).clip(-1, 1) for text in texts]
    async with working(stage) as desk:
        found = await asyncio.gather(*(said(desk, f"{n}", text) for n, text in enumerate(texts)))
        order = [emit.run for emit in desk.sent if isinstance(emit, messages.Emit)]
    assert [np.array_equal(whole(one), other) for one, other in zip(found, alone, strict=True)] == [True] * 4
    assert order != sorted(order), "they took turns"


async def test_the_seed_and_nothing_else_draws_the_voice(folder: Path) -> None:
    from engine.core import Sampling

    stage = voice(folder)
    async with working(stage) as desk:
        torch.manual_seed(1)
        first = whole(await said(desk, "a", TEXT, sampling=Sampling(seed=7)))
        torch.manual_seed(2)
        assert np.array_equal(first, whole(await said(desk, "b", TEXT, sampling=Sampling(seed=7))))
        drawn = torch.rand(1)
        assert not np.array_equal(first, whole(await said(desk, "c", TEXT, sampling=Sampling(seed=8))))
    torch.manual_seed(2)
    assert torch.equal(drawn, torch.rand(1)), "torch's own randomness is as if nobody had spoken"


async def test_marks_lead_through_the_text_to_its_end(folder: Path) -> None:
    async with working(voice(folder)) as desk:
        found = await said(desk, "a", TEXT)
    marks = [mark for audio in found for mark in audio.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (len(whole(found)), len(TEXT))
    assert len(marks) >= 15


class Held:
    """The library, whose every frame waits to be let go."""

    def __init__(self, frames: Callable[..., Iterator[Wave]]) -> None:
        self._frames, self.begun, self.go = frames, threading.Semaphore(0), threading.Semaphore(0)
        self.open = 0

    def __call__(self, *asked: Any) -> Iterator[Wave]:
        self.open += 1
        try:
            for wave in self._frames(*asked):
                if len(wave):
                    self.begun.release()
                    self.go.acquire()
                yield wave
        finally:
            self.open -= 1


async def test_who_leaves_gets_no_further_sample_and_the_clause_ends_with_the_frame(folder: Path) -> None:
    stage = voice(folder)
    stage._library.frames = held = Held(stage._library.frames)
    async with working(stage) as desk:
        desk.put(opened("a", "voice"), messages.Feed("a", Text(TEXT, 0)), messages.End("a"))
        await until(lambda: held.begun.acquire(blocking=False))
        held.go.release()
        await until(lambda: held.begun.acquire(blocking=False))
        given = len(desk.of(messages.Emit, "a"))
        desk.put(messages.Close("a"))
        held.go.release()
        await until(lambda: desk.worker.free["voice"] == stage.info.slots)
        assert len(desk.of(messages.Emit, "a")) == given == 1
        assert not held.begun.acquire(blocking=False), "no frame was begun"
        assert held.open == 0, "and the clause is let go of"


async def test_who_leaves_between_two_frames_is_let_go_of_at_once(folder: Path) -> None:
    stage = voice(folder)
    stage._library.frames = held = Held(stage._library.frames)
    held.go.release(1000)
    async with working(stage) as desk:
        desk.put(opened("a", "voice", credit=3), messages.Feed("a", Text(TEXT, 0)), messages.End("a"))
        await until(lambda: len(desk.of(messages.Emit, "a")) == 3 and not desk.worker.in_step)
        assert held.open == 1
        desk.put(messages.Close("a"))
        await until(lambda: desk.worker.free["voice"] == stage.info.slots)
        assert held.open == 0


async def test_another_replica_goes_on_to_the_sample(folder: Path) -> None:
    await check_that_another_goes_on(voice(folder), np.array_equal)


async def test_a_recording_is_cloned_as_the_library_clones_it(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "anna.wav"
    soundfile.write(path, recording(5), RATE_HZ)
    stage = voice(folder, clones=[clone_of(path)])
    assert [one.id for one in stage.info.facets.voices] == ["alba", "marius", "anna"]
    async with working(stage) as desk:
        own = stage._library._model.get_state_for_audio_prompt(path)
        sound = whole(await said(desk, "a", TEXT, voice="anna"))
        assert np.array_equal(sound, library_says(stage, TEXT, own).clip(-1, 1))
        assert not np.array_equal(sound, whole(await said(desk, "b", TEXT, voice="alba")))


def test_weights_without_voice_cloning_clone_nobody(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    bare = pocket(tmp_path / "bare")
    weights = bare / "languages" / "english" / "model.safetensors"
    zeroed = {name: one * 0 if ".encoder." in name else one for name, one in load_file(weights).items()}
    save_file(zeroed, weights)
    soundfile.write(tmp_path / "anna.wav", recording(5), RATE_HZ)
    with pytest.raises(WeightsError, match=r"do not support voice cloning\. Download those of kyutai/pocket-tts"):
        voice(bare, clones=[clone_of(tmp_path / "anna.wav")])


def test_what_a_voice_says_of_itself(folder: Path) -> None:
    info = voice(folder, voice="marius").info
    assert [(one.id, one.name, one.language) for one in info.facets.voices] == [
        ("marius", "Marius", "en"), ("alba", "Alba", "en"),
    ]  # fmt: skip
    assert (info.facets.languages, info.blocking, info.batch) == (("en",), True, 1)


def test_a_voice_describes_itself_without_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.worker.stages.tts.pocket import STAGE

    monkeypatch.setitem(sys.modules, "pocket_tts", None)
    assert len(STAGE.describe(StageConfig(weights=folder)).facets.voices) == 2
    with pytest.raises(ConfigError, match=r"needs the package pocket-tts: .+ pip install .+\[pocket\]"):
        voice(folder)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"voice": "albert"}, r"options.voice: there is no voice 'albert' .did you mean 'alba'"),
        ({"language": "deutsch!"}, "options.language: 'deutsch!' is not a language tag"),
        ({"model": "english_2027"}, r"options.model: Pocket TTS has no model 'english_2027' .did you mean 'english_20"),
        ({"clone": []}, "options.clone: unknown key .did you mean 'clones'"),
        ({"clones": [{"name": "a", "reference": "a.wav"}]}, r"options.clones\[0\].consent: missing"),
    ],
)
def test_options_that_mean_nothing_are_refused(folder: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        voice(folder, **options)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda home: (home / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda home: (home / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda home: (home / "other.yaml").write_text("{}"), r"several YAML files \(english.yaml, other.yaml\)"),
        (
            lambda home: (home / "english.yaml").write_text("{}"),
            r"english.yaml is not a configuration of a Pocket TTS model",
        ),
        (lambda home: (home / "english.yaml").unlink(), "cannot be loaded"),  # the package's own is larger
        (lambda home: (home / "model.safetensors").write_bytes(b"cut"), "cannot be loaded"),
        (lambda home: (home / "tokenizer.json").write_text("{}"), "cannot be loaded"),
        (lambda home: (home / "embeddings" / "alba.safetensors").write_bytes(b"cut"), r"alba.safetensors cannot be re"),
        (lambda home: [one.unlink() for one in home.glob("embeddings/*")], "has no embeddings/NAME.safetensors"),
    ],
)
def test_a_folder_that_is_no_voice_is_one_sentence(
    folder: Path, tmp_path: Path, spoil: Callable[[Path], Any], reason: str
) -> None:
    import shutil

    home = Path(shutil.copytree(folder, tmp_path / "voice")) / "languages" / "english"
    spoil(home)
    with pytest.raises(WeightsError, match=reason) as raised:
        voice(tmp_path / "voice")
    assert len(str(raised.value)) < 500


def test_a_voice_of_another_model_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    home = Path(shutil.copytree(folder, tmp_path / "voice")) / "languages" / "english"
    alba = home / "embeddings" / "alba.safetensors"
    half = {name: one[..., :8].contiguous() if "cache" in name else one for name, one in load_file(alba).items()}
    save_file(half, alba)
    with pytest.raises(WeightsError, match=r"alba.safetensors belongs to another model"):
        voice(tmp_path / "voice")


def test_without_weights_it_is_said_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"tts\.pocket needs `weights`: the folder of a voice of Pocket TTS"):
        voice(None)


async def test_nothing_that_is_said_reaches_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with working(voice(folder)) as desk:
        await said(desk, "a", "Kowalski-" * 40)
        assert failure(desk, "a") == ""
    assert "owalski" not in caplog.text


OFFLINE = """
import sys, socket
from pathlib import Path
def refuse(*args): raise SystemExit("it reached out")
socket.socket.connect = socket.getaddrinfo = refuse
from engine.worker.tts.clause_voice import Saying
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
stage = make("tts.pocket", "voice", 0, StageConfig(weights=Path(sys.argv[1])))
print(sum(len(wave) for wave, _ in stage.pieces(Saying("Hello world.", "alba"))) > 1000)
print("torch._dynamo" in sys.modules, "scipy.signal" in sys.modules)
import numpy, torch, pocket_tts.data.audio_utils as audio
print(audio.convert_audio(torch.from_numpy(numpy.ones((1, 800), numpy.float32)), 8000, 16_000, 1).shape[-1])
print(torch.compiler.disable.__name__, "scipy.signal" in sys.modules)
"""


@pytest.mark.slow
def test_it_speaks_with_the_network_blocked_no_cache_and_no_compiler(folder: Path, tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[5])}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(folder)], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.stdout.splitlines() == ["True", "False False", "1600", "disable True"], done.stderr
    assert not [*tmp_path.rglob("*huggingface*"), *tmp_path.rglob("*pocket_tts*")]
