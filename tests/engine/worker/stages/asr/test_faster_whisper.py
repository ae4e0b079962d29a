"""Whisper by faster-whisper: the library itself, with a model of one layer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.chunk import Speech, Transcript
from engine.core import MIC_RATE_HZ, NO_HINTS, Pcm, SpeechHints
from engine.errors import ConfigError, WeightsError
from engine.ipc import messages
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.stages.asr import faster_whisper as module
from tests.engine.fakes import opened, until, working

pytest.importorskip("faster_whisper")
pytest.importorskip("sherpa_onnx")  # tests of its stages have the helpers

from tests.engine.worker.stages.asr import tiny_clip_ears, tiny_whisper
from tests.engine.worker.stages.asr.test_sherpa import cut, heard, without
from tests.engine.worker.stages.asr.test_sherpa_offline import spoken, ticking
from tests.engine.worker.stages.asr.tiny_ears import speech


def ears(folder: Path | None, device: str = "cpu", **options: Any) -> Any:
    options = {"compute_type": "float32"} | options
    return make("asr.faster_whisper", "ears", 0, StageConfig(weights=folder, slots=32, device=device, options=options))


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_whisper.whisper(tmp_path_factory.mktemp("english"))


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_whisper.whisper(tmp_path_factory.mktemp("multilingual"), tiny_whisper.LANGUAGES)


@pytest.fixture(params=["english", "multilingual"])
def folder(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


class Recording:
    """CTranslate2's model, with what it was asked to decode."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.windows: list[tuple[int, ...]] = []
        self.prompts: list[list[int]] = []
        self.options: list[dict[str, Any]] = []

    def encode(self, features: Any, to_cpu: bool) -> Any:
        self.windows.append(tuple(features.shape))
        return self._model.encode(features, to_cpu=to_cpu)

    def generate(self, encoded: Any, prompts: list[list[int]], **options: Any) -> Any:
        self.prompts += prompts
        self.options.append(options)
        return self._model.generate(encoded, prompts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def recorded(stage: Any) -> Recording:
    stage._model.model = Recording(stage._model.model)
    return stage._model.model


def test_a_clip_is_decoded_in_a_window_with_ten_to_fifteen_seconds_of_silence(english: Path) -> None:
    stage = ears(english)
    record = recorded(stage)
    for seconds in (0.2, 4.9, 5.1, 14.0, 21.0, 29.0):
        stage.transcribe([speech(seconds, 1)])
    assert [frames / 100 for _, _, frames in record.windows] == [15, 15, 20, 25, 30, 30]


def test_clips_of_one_window_share_a_batch_and_each_has_its_own_words(folder: Path) -> None:
    stage = ears(folder)
    clips = [speech(seconds, n) for n, seconds in enumerate((1.0, 7.0, 2.5, 29.0, 4.0, 8.0))]
    alone = [stage.transcribe([clip])[0] for clip in clips]
    record = recorded(stage)
    assert stage.transcribe(clips) == alone
    assert sorted(count for count, _, _ in record.windows) == [1, 2, 3]
    assert len({words.text for words in alone}) > 2


async def test_words_come_while_the_user_speaks(english: Path) -> None:
    stage, pcm = ears(english), speech(2, 3)
    stage._clock = ticking(0.0)
    async with working(stage) as desk:
        desk.put(opened("a", "ears", live=True), messages.Feed("a", Speech(pcm[:MIC_RATE_HZ])))
        await until(lambda: bool(heard(desk, "a")[0]))
        desk.put(messages.Feed("a", Speech(pcm[MIC_RATE_HZ:])), messages.End("a"))
        await desk.ended("a")
        partials, [final] = heard(desk, "a")
    assert partials[0] == stage.transcribe([pcm[:MIC_RATE_HZ]])[0].text
    assert final == Transcript(stage.transcribe([pcm])[0].text, final=True, understood=True, language="en")


@pytest.mark.parametrize("samples", [0, 5, 1500, 30_000])
async def test_silence_and_clips_too_short_are_not_understood(english: Path, samples: int) -> None:
    async with working(ears(english)) as desk:
        told = await spoken(desk, "a", np.zeros(samples, np.int16))
    assert told == ([], [Transcript("", final=True, understood=False)])


def test_one_language_is_listened_for_and_of_several_the_likeliest(multilingual: Path) -> None:
    detected = "de" if languages_in(ears(multilingual), speech(2, 1)) != "de" else "fr"
    assert languages_in(ears(multilingual, languages=[detected]), speech(2, 1)) == detected
    assert languages_in(ears(multilingual, languages=["de-CH", "fr"]), speech(2, 1)) in ("de", "fr")
    assert ears(multilingual).info.facets.heard_languages == tiny_whisper.LANGUAGES
    assert ears(multilingual, languages=["de-CH"]).info.facets.heard_languages == ("de-CH",)


def test_each_transcript_has_the_language_of_its_clip(multilingual: Path) -> None:
    stage = ears(multilingual, languages=["de", "fr"])
    hints = [SpeechHints(languages=(code,)) for code in ("fr", "de")]
    assert [one.language for one in stage.transcribe_hinted([speech(2, 1)] * 2, hints)] == ["fr", "de"]
    assert stage.transcribe([speech(2, 1)])[0].language == languages_in(stage, speech(2, 1))


def languages_in(stage: Any, pcm: Pcm, hints: SpeechHints = NO_HINTS) -> str:
    """Return the language in the prompt of a clip."""
    record = recorded(stage)
    stage.transcribe_hinted([pcm], [hints])
    start = stage._model.hf_tokenizer.token_to_id("<|startoftranscript|>")
    number = record.prompts[0][record.prompts[0].index(start) + 1]
    return stage._model.hf_tokenizer.id_to_token(number).strip("<|>")


def test_an_english_model_knows_english_only(english: Path) -> None:
    assert ears(english).info.facets.heard_languages == ("en",)
    with pytest.raises(ConfigError, match=r"options\.languages: this model does not support 'de' \(supported: en\)"):
        ears(english, languages=["de"])


def test_a_prompt_and_the_beams_reach_the_model(english: Path) -> None:
    stage = ears(english, prompt="fine ", beam_size=3)
    record = recorded(stage)
    stage.transcribe([speech(1, 1)])
    tokenizer = stage._model.hf_tokenizer
    [prompt] = record.prompts
    assert prompt[0] == tokenizer.token_to_id("<|startofprev|>")
    assert tokenizer.decode(prompt[1:6]) == " fine"
    assert record.options[0]["beam_size"] == 3


def test_keywords_and_the_prompt_of_a_session_surround_the_configured_prompt(english: Path) -> None:
    stage = ears(english, prompt="fine")
    record = recorded(stage)
    hints = SpeechHints(keywords=("hello", "one"), prompt=" day ")
    stage.transcribe_hinted([speech(1, 1), speech(1, 2)], [hints, NO_HINTS])
    tokenizer = stage._model.hf_tokenizer
    start = tokenizer.token_to_id("<|startoftranscript|>")
    texts = {tokenizer.decode(prompt[1 : prompt.index(start)]) for prompt in record.prompts}
    assert texts == {" hello, one fine day", " fine"}


def test_the_language_of_a_session_is_used_if_the_stage_listens_for_it(multilingual: Path) -> None:
    stage, pcm = ears(multilingual, languages=["de", "fr"]), speech(2, 1)
    spoken = [languages_in(stage, pcm, SpeechHints(languages=(code,))) for code in ("fr", "de-AT", "DE", "en")]
    assert spoken[:3] == ["fr", "de", "de"]
    assert spoken[3] == languages_in(stage, pcm), "English is none of the stage's languages"


def test_a_text_without_an_end_is_not_understood(english: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, pcm = ears(english), speech(2, 2)
    words = stage.transcribe([pcm])[0].text.split()
    assert words
    monkeypatch.setattr(module, "TOKENS_PER_S", -4)  # 2 tokens for these two seconds
    assert stage.transcribe([pcm])[0].text == ""


@pytest.mark.parametrize(
    ("no_speech", "mean_logprob", "understood"),
    [(0.9, -0.2, True), (0.1, -0.9, True), (0.1, -1.1, False), (0.9, -0.6, False), (0.55, -0.6, True)],
)
def test_an_unlikely_text_is_dropped_and_sooner_where_nobody_seems_to_speak(
    no_speech: float, mean_logprob: float, understood: bool
) -> None:
    tokens = [1, 2, 3]
    result = SimpleNamespace(sequences_ids=[tokens], scores=[mean_logprob * 4 / 3], no_speech_prob=no_speech)
    tokenizer = SimpleNamespace(decode=lambda tokens: " Thank you.")
    assert module._text(result, tokenizer, 100) == ("Thank you." if understood else "")


@pytest.mark.parametrize(
    ("device", "options", "reason"),
    [
        ("cpu", {"beam_size": 0}, r"options\.beam_size: must be from 1 to 20 \(got 0\)"),
        ("cpu", {"compute_type": "int3"}, r"options\.compute_type: 'int3' is not supported on cpu \(supported: .*int8"),
        ("cpu", {"beams": 5}, r"options\.beams: unknown key \(did you mean 'beam_size'"),
        ("mps", {}, r"supports the CPU and NVIDIA GPUs, not mps"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(
    english: Path, device: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        ears(english, device, **options)


def folder_instead(name: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return harm


def of_another_model(folder: Path) -> None:
    tiny_whisper.whisper(folder / "other", tiny_whisper.LANGUAGES)
    (folder / "other" / "tokenizer.json").rename(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (cut("model.bin"), "cannot be loaded"),
        (folder_instead("model.bin"), "has no model.bin. Copy or download"),
        (without("config.json"), "has no config.json"),
        (cut("config.json"), r"config\.json cannot be read or is incomplete"),
        (without("tokenizer.json"), "has no tokenizer.json"),
        (cut("tokenizer.json"), "cannot be loaded"),
        (of_another_model, "tokenizer.json belongs to another model"),
        (without("vocabulary.txt"), "has no vocabulary.txt"),
        (folder_instead("vocabulary.txt"), "has no vocabulary.txt"),
        (cut("vocabulary.txt"), r"vocabulary\.txt has no <\|endoftext\|>\. The file is incomplete, or does not belong"),
        (lambda folder: (folder / "model.bin").write_bytes(b"GGUF" * 99), "cannot be loaded"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_one_sentence(
    tmp_path: Path, harm: Callable[[Path], Any], reason: str
) -> None:
    found = tiny_whisper.whisper(tmp_path)
    harm(found)
    with pytest.raises(WeightsError, match=reason) as caught:
        ears(found)
    assert "\n" not in str(caught.value)


def test_a_folder_of_sherpa_names_its_stage(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"a sherpa-onnx model, which asr\.faster_whisper cannot load; set use: asr"):
        ears(tiny_clip_ears.whisper(tmp_path))


def test_without_the_package_the_message_says_how_to_install_it(english: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(ConfigError, match=r"needs the package faster-whisper: .+ pip install .+\[whisper\]"):
        ears(english)
