"""A folder of another library's model is named for what it is, with the stage that loads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import WeightsError
from engine.worker.asr.sherpa_offline import offline_ears
from engine.worker.asr.sherpa_streaming import sherpa_ears
from engine.worker.libraries import weights_folder as module
from engine.worker.libraries.weights_folder import weights_folder

CTRANSLATE2 = ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt")
SHERPA = ("base-encoder.int8.onnx", "base-decoder.int8.onnx", "base-tokens.txt")
MOONSHINE = ("streaming_config.json", "tokenizer.bin", "encoder.ort")


def folder_of(folder: Path, files: tuple[str, ...]) -> Path:
    for name in files:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("ears", [offline_ears, sherpa_ears])
def test_sherpa_names_a_folder_of_ctranslate2(tmp_path: Path, ears: Callable[[Path], object]) -> None:
    folder_of(tmp_path, CTRANSLATE2)
    with pytest.raises(WeightsError, match=r"has a CTranslate2 model, which asr\.sherpa\S* cannot load; "):
        ears(tmp_path)


@pytest.mark.parametrize(
    ("files", "use", "message"),
    [
        (
            CTRANSLATE2,
            "asr.sherpa_offline",
            "a CTranslate2 model, which asr.sherpa_offline cannot load; set use: asr.f",
        ),
        (CTRANSLATE2, "tts.sherpa", "a CTranslate2 model, which tts.sherpa cannot load; no tts stage of this version"),
        (
            SHERPA,
            "asr.faster_whisper",
            "a sherpa-onnx model, which asr.faster_whisper cannot load; set use: asr.sherpa or",
        ),
        (SHERPA, "tts.phonon", "a sherpa-onnx model, which tts.phonon cannot load; set use: tts.sherpa."),
        (MOONSHINE, "asr.sherpa", "a streaming Moonshine model, which asr.sherpa cannot load; set use: asr.moonshine."),
    ],
)
def test_the_stage_that_loads_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...], use: str, message: str
) -> None:
    ours = {"asr": ["faster_whisper", "moonshine", "sherpa", "sherpa_offline"], "tts": ["phonon", "sherpa"]}
    monkeypatch.setattr(module, "names", lambda package: ours[package.rpartition(".")[2]])
    with pytest.raises(WeightsError) as caught:
        weights_folder(folder_of(tmp_path, files), use, "a model")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("files", "use"),
    [(CTRANSLATE2, "asr.faster_whisper"), (SHERPA, "asr.sherpa_offline"), (MOONSHINE, "asr.moonshine"), ((), "tts.x")],
)
def test_a_stage_s_own_model_is_not_refused(tmp_path: Path, files: tuple[str, ...], use: str) -> None:
    assert weights_folder(folder_of(tmp_path, files), use, "a model") == tmp_path
