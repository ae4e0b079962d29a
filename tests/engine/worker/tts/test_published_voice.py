"""Kokoro and Piper as their authors publish them: the library's files follow from these, which stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from engine.errors import WeightsError
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.tts.sherpa import sherpa_voice
from tests.engine.fakes import working
from tests.engine.worker.stages.tts import tiny_voices
from tests.engine.worker.stages.tts.saying import said, whole

pytest.importorskip("sherpa_onnx")

WORDS = {"hello": "hel", "world": {"DEFAULT": "world", "VERB": "w"}, "Polish": "po", "polish": "pol", "none": None}
IDS = {"_": [0], "^": [1], "$": [2], " ": [3], ",": [4], ".": [5], **{chr(97 + i): [6 + i] for i in range(26)}}


def without_metadata(path: Path, to: Path) -> None:
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, to)
    path.unlink()


def dictionaries(folder: Path) -> Path:
    (folder / "us_gold.json").write_text(json.dumps(WORDS))
    (folder / "us_silver.json").write_text('{"hello": "silver"}')
    return folder


def kokoro(folder: Path) -> Path:
    tiny_voices.kokoro(folder, style_dim="510,1,256")
    without_metadata(folder / "model.onnx", folder / "kokoro-v1.0.int8.onnx")
    for name in ("tokens.txt", "voices.bin", "lexicon-us-en.txt"):
        (folder / name).unlink()
    (folder / "vocab.json").write_text(json.dumps({"vocab": {token: i for i, token in enumerate(tiny_voices.TOKENS)}}))
    (folder / "voices").mkdir()
    for i, name in enumerate(("af_bella", "af_heart", "am_adam")):
        np.full(510 * 256, i, np.float32).tofile(folder / "voices" / f"{name}.bin")
    return dictionaries(folder)


def piper(folder: Path) -> Path:
    tiny_voices.vits(folder)
    without_metadata(folder / "model.onnx", folder / "en_US-joe-medium.onnx")
    for name in ("tokens.txt", "lexicon.txt"):
        (folder / name).unlink()
    settings = {
        "language": {"name_english": "English"}, "espeak": {"voice": "en-us"}, "num_speakers": 1,
        "audio": {"sample_rate": 22_050}, "phoneme_id_map": IDS, "dataset": "joe",
    }  # fmt: skip
    (folder / "en_US-joe-medium.onnx.json").write_text(json.dumps(settings))
    return dictionaries(folder)


def test_kokoro_is_known_by_its_files(tmp_path: Path) -> None:
    voice = sherpa_voice(kokoro(tmp_path))
    assert (voice.family, voice.rate_hz, voice.languages) == ("kokoro", 24_000, ("en-US",))
    assert [one.id for one in voice.voices] == ["af_heart", "af_bella", "am_adam"], "the best one first"


def test_piper_is_known_by_its_files(tmp_path: Path) -> None:
    voice = sherpa_voice(piper(tmp_path))
    assert (voice.family, voice.rate_hz, voice.languages) == ("vits", 22_050, ("en-US",))
    assert [(one.id, one.name, one.language) for one in voice.voices] == [("0", "Joe", "en-US")]


def test_the_librarys_files_follow_and_the_published_ones_stay(tmp_path: Path) -> None:
    folder = kokoro(tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    voice = sherpa_voice(folder)
    assert voice.published is not None
    with voice.published.for_library() as made:
        metadata = {pair.key: pair.value for pair in onnx.load(made / "model.onnx").metadata_props}
        assert metadata == voice.published.metadata
        assert (made / "tokens.txt").read_text().splitlines()[:3] == ["$ 0", "  1", ", 2"]
        styles = np.fromfile(made / "voices.bin", np.float32).reshape(3, -1)
        assert styles[:, 0].tolist() == [1, 0, 2]
    assert not made.exists()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_words_come_from_misakis_dictionaries(tmp_path: Path) -> None:
    pronounce = sherpa_voice(kokoro(tmp_path)).pronounce
    assert pronounce is not None
    assert pronounce("hello world, polish.") == "hel world, pol."


async def test_a_published_voice_speaks_and_drops_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_voices, "STYLE", 256)
    stage: Any = make("tts.sherpa", "voice", 0, StageConfig(weights=kokoro(tmp_path), slots=4))
    async with working(stage) as desk:
        known = whole(await said(desk, "a", "hello world"))
        more = whole(await said(desk, "b", "hello kowalski world"))
    assert len(known) > 1000
    assert len(more) > 1.5 * len(known)


@pytest.mark.parametrize(
    ("make_voice", "name", "data", "reason"),
    [
        (kokoro, "voices/af_bella.bin", b"x" * 7, r"af_bella\.bin has 7 bytes instead of 522240"),
        (kokoro, "vocab.json", b"[1]", r"vocab\.json is not a JSON object\. Download it again"),
        (kokoro, "vocab.json", b'{"vocab": 3}', "has an invalid token table"),
        (
            kokoro,
            "us_gold.json",
            None,
            r"has no us_gold\.json\. Copy us_gold\.json and us_silver\.json next to it",
        ),
        (kokoro, "us_gold.json", b"{", r"us_gold\.json is not a misaki dictionary"),
        (piper, "en_US-joe-medium.onnx.json", b"{}", "does not describe a Piper voice"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    tmp_path: Path, make_voice: Callable[[Path], Path], name: str, data: bytes | None, reason: str
) -> None:
    folder = make_voice(tmp_path)
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)
    with pytest.raises(WeightsError, match=reason):
        _ = sherpa_voice(folder).pronounce


def test_a_published_voice_of_another_language_is_refused(tmp_path: Path) -> None:
    folder = piper(tmp_path)
    path = folder / "en_US-joe-medium.onnx.json"
    path.write_text(path.read_text().replace("en-us", "de").replace("English", "German"))
    with pytest.raises(WeightsError, match=r"speaks German\. In the authors' format, tts\.sherpa supports English"):
        sherpa_voice(folder)
