"""The voice of Phonon: the library itself, with random weights."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pytest.importorskip("ptts")
pytest.importorskip("pocket_tts", reason="the random weights are made with pocket-tts: pip install -e '.[pocket]'")

import ptts

from engine.chunk import Text
from engine.core import Sampling
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.randomness import GOLDEN
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import Saying
from tests.engine.fakes import opened, until, working
from tests.engine.worker.stages.tts.saying import TEXT, check_that_another_goes_on, clauses_of, clone_of, said, whole
from tests.engine.worker.stages.tts.tiny_phonon import phonon
from tests.engine.worker.stages.tts.tiny_pocket import FRAME, RATE_HZ, recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phonon(tmp_path_factory.mktemp("phonon") / "voice")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phonon(tmp_path_factory.mktemp("endless") / "voice", endless=True)


def voice(folder: Path | None, **options: Any) -> Any:
    return make("tts.phonon", "voice", 0, StageConfig(weights=folder, options=options, slots=32))


def library_says(stage: Any, text: str, name: str, seed: int = 0) -> np.ndarray:
    """What the library's own ``synth`` makes of each clause, seeded as the stage seeds it."""
    seeds = [(seed + n * GOLDEN) % (1 << 64) for n in range(len(clauses_of(text)))]
    return np.concatenate(
        [stage._tts.synth(one, voice=name, seed=seed) for one, seed in zip(clauses_of(text), seeds, strict=True)]
    )


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """To the last bit but one: the library decodes as many codec frames at a time as lie there just then."""
    return len(one) == len(other) and bool(np.allclose(one.clip(-1, 1), other.clip(-1, 1), rtol=0, atol=1e-5))


def threads() -> int:
    """The native ones too."""
    return len([*Path("/proc/self/task").iterdir()])


async def test_streamed_sound_is_the_librarys_own_for_the_same_clauses(folder: Path) -> None:
    stage = voice(folder)
    async with working(stage) as desk:
        for name in ("alba", "marius"):
            found = await said(desk, name, TEXT, voice=name, sampling=Sampling(seed=3))
            assert alike(whole(found), library_says(stage, TEXT, name, 3))
        assert len(found[0].wave) <= FRAME, "a codec frame at a time"


async def test_answers_that_take_turns_are_each_what_they_are_alone(endless: Path) -> None:
    stage = voice(endless)
    texts = [" ".join(TEXT.split()[n:]) for n in range(4)]
    alone = [library_says(stage, text, "alba") for text in texts]
    async with working(stage) as desk:
        found = await asyncio.gather(*(said(desk, f"{n}", text) for n, text in enumerate(texts)))
        order = [emit.run for emit in desk.sent if isinstance(emit, messages.Emit)]
    assert [alike(whole(one), other) for one, other in zip(found, alone, strict=True)] == [True] * 4
    assert order != sorted(order), "they took turns"


async def test_who_leaves_gets_no_further_sample_and_the_librarys_threads_end(endless: Path) -> None:
    stage = voice(endless)
    async with working(stage) as desk:
        before = threads()
        desk.put(opened("a", "voice", credit=3), messages.Feed("a", Text(TEXT, 0)), messages.End("a"))
        await until(lambda: len(desk.of(messages.Emit, "a")) == 3 and not desk.worker.in_step)
        assert threads() > before
        desk.put(messages.Close("a"))
        await until(lambda: desk.worker.free["voice"] == stage.info.slots)
        await until(lambda: threads() == before)
        assert len(desk.of(messages.Emit, "a")) == 3


async def test_another_replica_goes_on_to_the_sample(endless: Path) -> None:
    await check_that_another_goes_on(voice(endless), alike)


async def test_a_recording_is_cloned_as_the_library_clones_it(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "anna.wav"
    soundfile.write(path, recording(5, 12.0), RATE_HZ, subtype="FLOAT")
    stage = voice(folder, clones=[clone_of(path)])
    async with working(stage) as desk:
        sound = whole(await said(desk, "a", TEXT, voice="anna"))
    stage._tts.clone_voice("again", recording(5, 12.0))
    assert alike(sound, library_says(stage, TEXT, "again"))
    assert not alike(sound, library_says(stage, TEXT, "alba"))


def test_a_recording_that_is_shorter_than_the_model_wants_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "anna.wav"
    soundfile.write(path, recording(5, 4.0), RATE_HZ)
    with pytest.raises(ConfigError, match=r"anna.wav of the voice anna: .* too short: .* at least .*10.00s"):
        voice(folder, clones=[clone_of(path)])


def test_what_a_voice_says_of_itself(folder: Path) -> None:
    info = voice(folder, voice="marius").info
    assert [(one.id, one.name, one.language) for one in info.facets.voices] == [
        ("marius", "Marius", "en"), ("alba", "Alba", "en"),
    ]  # fmt: skip
    assert (info.facets.languages, info.blocking, info.batch) == (("en",), True, 1)


async def test_a_model_without_voices_speaks_all_the_same(tmp_path: Path) -> None:
    stage = voice(phonon(tmp_path / "voice", names=()))
    assert stage.info.facets.voices == ()
    async with working(stage) as desk:
        assert len(whole(await said(desk, "a", "hello"))) > 0


async def test_of_several_languages_the_one_that_is_asked_for_is_read(tmp_path: Path) -> None:
    several = phonon(tmp_path / "voice", languages=["en", "fr"])
    english, french = voice(several), voice(several, language="fr-CA")
    assert english.info.facets.languages == ("en", "fr")
    assert french.info.facets.languages == ("fr-CA", "en")
    saying = Saying("3 + 3 = 6", "alba")
    spoken = [np.concatenate([wave for wave, _ in stage.pieces(saying)]) for stage in (english, french)]
    library = [ptts.TTS(str(several), lang=lang).synth("3 + 3 = 6", voice="alba", seed=0) for lang in ("en", "fr")]
    assert [alike(one, other) for one in spoken for other in library] == [True, False, False, True]


def test_a_voice_describes_itself_without_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.worker.stages.tts.phonon import STAGE

    monkeypatch.setitem(sys.modules, "ptts", None)
    assert len(STAGE.describe(StageConfig(weights=folder)).facets.voices) == 2
    with pytest.raises(ConfigError, match=r"needs the package ptts: .+ pip install .+\[phonon\]"):
        voice(folder)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"voice": "albert"}, r"options.voice: there is no voice 'albert' .did you mean 'alba'"),
        ({"language": "de"}, "options.language: this voice speaks en, not de"),
        ({"quant": "q3"}, "cannot be loaded .*q3"),
        ({"quantum": "q8_0"}, "options.quantum: unknown key .did you mean 'quant'"),
    ],
)
def test_options_that_mean_nothing_are_refused(folder: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises((ConfigError, WeightsError), match=reason):
        voice(folder, **options)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda home: (home / "config.json").unlink(), "config.json does not describe a Phonon voice"),
        (lambda home: (home / "config.json").write_text("[1]"), "config.json does not describe a Phonon voice"),
        (lambda home: (home / "config.json").write_text("{}"), "cannot be loaded .*missing field"),
        (lambda home: (home / "tokenizer.json").unlink(), "cannot be loaded"),
        (lambda home: (home / "model.safetensors").unlink(), "cannot be loaded"),
        (lambda home: (home / "model.safetensors").write_bytes(b"cut"), "cannot be loaded"),
        (lambda home: (home / "voices" / "alba.safetensors").write_bytes(b"cut"), "The voice alba in .* cannot be rea"),
    ],
)
def test_a_folder_that_is_no_voice_is_one_sentence(
    folder: Path, tmp_path: Path, spoil: Callable[[Path], Any], reason: str
) -> None:
    import shutil

    home = Path(shutil.copytree(folder, tmp_path / "voice"))
    spoil(home)
    with pytest.raises(WeightsError, match=reason) as raised:
        voice(home)
    assert len(str(raised.value)) < 500


def test_without_weights_it_is_said_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"tts\.phonon needs `weights`: the folder of a voice of Phonon"):
        voice(None)


SPEAKS = """
import sys
from pathlib import Path
from engine.worker.tts.clause_voice import Saying
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
stage = make("tts.phonon", "voice", 0, StageConfig(weights=Path(sys.argv[1])))
print(sum(len(wave) for wave, _ in stage.pieces(Saying("Hello world.", "alba"))) > 1000)
if sys.argv[2] == "catalogue":
    stage._tts.synth("hello", voice="nobody")
if sys.argv[2] == "hub":
    import ptts
    ptts.TTS("hf://gradium/phonon-31m-en", lang="en")
"""


@pytest.mark.parametrize(("also", "asks"), [("", False), ("catalogue", False), ("hub", True)])
def test_it_asks_no_hub_not_even_for_a_voice_that_there_is_not(
    folder: Path, tmp_path: Path, also: str, asks: bool
) -> None:
    """Its sockets are native, which no guard in Python sees: so the hub is one of our own, and nobody comes there."""
    came = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as hub:
        waiting = threading.Thread(target=_note, args=(hub, came))
        waiting.start()
        port = hub.getsockname()[1]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_ENDPOINT": f"http://127.0.0.1:{port}",
                       "PYTHONPATH": str(Path(__file__).parents[5])}  # fmt: skip
        asked = [sys.executable, "-c", SPEAKS, str(folder), also]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, env=environment)
        if not (found := came.is_set()):
            socket.create_connection(("127.0.0.1", port)).close()
        waiting.join()
    assert done.stdout.split() == ["True"], done.stderr
    assert found == asks, "hub: the control, which sees the library come there when it is told to"


def _note(hub: socket.socket, came: threading.Event) -> None:
    """Refuse who comes, and whoever comes then."""
    connection, _ = hub.accept()
    came.set()
    hub.close()
    connection.close()


def test_the_configuration_is_read_as_the_hub_has_it(folder: Path) -> None:
    """Voices inside the model stand in its configuration."""
    from engine.worker.stages.tts.phonon import _names

    settings = json.loads((folder / "config.json").read_text()) | {"voices": [{"name": "inside"}]}
    assert _names(folder, settings) == ["inside", "alba", "marius"]
