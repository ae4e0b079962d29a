"""Which voice of sherpa-onnx lies in a folder; what is missing is one sentence, before the library is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ConfigError, WeightsError
from engine.worker.tts.sherpa import sherpa_voice

pytest.importorskip("onnx")

from tests.engine.worker.stages.tts import tiny_voices


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text("hello h e l l o\n")
    return folder


def names(paths: tuple[Path, ...]) -> list[str]:
    return [path.name for path in paths]


@pytest.mark.parametrize(
    ("make", "family", "rate_hz"),
    [
        (tiny_voices.vits, "vits", 22_050),
        (tiny_voices.kokoro, "kokoro", 24_000),
        (lambda folder: tiny_voices.kokoro(folder, family="kitten"), "kitten", 24_000),
        (tiny_voices.matcha, "matcha", 22_050),
        # Older files do not say what they are.
        (lambda folder: tiny_voices.vits(folder, model_type=""), "vits", 22_050),
        (lambda folder: tiny_voices.kokoro(folder, model_type=""), "kokoro", 24_000),
        (lambda folder: tiny_voices.matcha(folder, model_type=""), "matcha", 22_050),
    ],
)
def test_a_folder_says_what_it_is(tmp_path: Path, make: Callable[[Path], Path], family: str, rate_hz: int) -> None:
    voice = sherpa_voice(make(tmp_path))
    assert (voice.family, voice.rate_hz) == (family, rate_hz)


def test_a_voice_of_several_languages_is_prepared_for_one(tmp_path: Path) -> None:
    folder = tiny_voices.kokoro(tmp_path)
    written(folder, "lexicon-gb-en.txt", "lexicon-zh.txt", "number-zh.fst", "date-zh.fst", "rule.far")
    voice = sherpa_voice(folder)
    assert voice.languages == ("en-US", "en-GB", "zh")
    assert names(voice.lexicons) == ["lexicon-us-en.txt", "lexicon-zh.txt"], "two of one language contradict each other"
    assert names(voice.rules) == ["rule.far"], "English numbers are not read in Chinese"
    assert [(one.id, one.language) for one in voice.voices] == [
        ("af_heart", "en-US"), ("bm_george", "en-GB"), ("zf_xiaoxiao", "zh"),
    ]  # fmt: skip
    british = sherpa_voice(folder, "en-gb")
    assert british.languages == ("en-GB", "en-US", "zh")
    assert names(british.lexicons) == ["lexicon-gb-en.txt", "lexicon-zh.txt"]
    chinese = sherpa_voice(folder, "zh-CN")
    assert chinese.languages[0] == "zh"
    assert names(chinese.lexicons)[0] == "lexicon-zh.txt"
    assert names(chinese.rules) == ["date-zh.fst", "number-zh.fst", "rule.far"]
    with pytest.raises(ConfigError, match=r"options\.language: .* speaks en-GB, en-US, zh, not de"):
        sherpa_voice(folder, "de")


@pytest.mark.parametrize(
    ("lexicon", "said", "languages"),
    [
        ("lexicon.txt", {"language": "German"}, ("de",)),
        ("lexicon.txt", {"language": "Chinese + English"}, ("zh", "en")),
        ("lexicon.txt", {"language": "Klingon", "voice": "en-us"}, ("en-US",)),
        ("lexicon.txt", {"language": "Klingon"}, ()),
        ("lexicon-en-us.txt", {"language": "German"}, ("en-US",)),
    ],
)
def test_a_language_is_the_lexicons_or_what_the_model_says(
    tmp_path: Path, lexicon: str, said: dict[str, Any], languages: tuple[str, ...]
) -> None:
    folder = tiny_voices.vits(tmp_path, **said)
    (folder / "lexicon.txt").rename(folder / lexicon)
    assert set(sherpa_voice(folder).languages) == set(languages)


def test_a_voice_without_a_known_language_speaks_the_one_that_is_asked_for(tmp_path: Path) -> None:
    assert sherpa_voice(tiny_voices.vits(tmp_path, language="Klingon"), "tlh").languages == ("tlh",)


def test_voices_have_their_names_or_their_numbers(tmp_path: Path) -> None:
    assert [one.id for one in sherpa_voice(tiny_voices.vits(tmp_path / "a", speakers=2)).voices] == ["0", "1"]
    assert [one.id for one in sherpa_voice(tiny_voices.vits(tmp_path / "b", speakers=0, n_speakers="0")).voices] == [
        "0"
    ]
    voice = sherpa_voice(tiny_voices.kokoro(tmp_path / "c", names="twin,twin"))
    assert [one.id for one in voice.voices] == ["0", "1"], "two of one name are told apart"
    assert sherpa_voice(tiny_voices.kokoro(tmp_path / "d")).number("bm_george") == 1


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _with(name: str, data: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(data)


@pytest.mark.parametrize(
    ("make", "harm", "reason"),
    [
        (tiny_voices.vits, _without("model.onnx"), r"has no model\.onnx"),
        (tiny_voices.vits, _without("tokens.txt"), r"has no tokens\.txt"),
        (tiny_voices.vits, _without("lexicon.txt"), r"has no lexicon\. sherpa-onnx 2 needs one"),
        (tiny_voices.vits, _with("model.onnx", b"x" * 50), "is not an ONNX file, or is incomplete: fetch it again"),
        (tiny_voices.vits, lambda folder: tiny_voices.vits(folder, sample_rate=""), "lacks the metadata sample_rate"),
        (
            tiny_voices.vits,
            lambda folder: tiny_voices.vits(folder, sample_rate="-3"),
            r"the metadata sample_rate is invalid \(got '-3'\)",
        ),
        (tiny_voices.vits, lambda folder: tiny_voices.vits(folder, rate_hz=7), "sample_rate of 7; it must be"),
        (tiny_voices.kokoro, _without("voices.bin"), r"has no voices\.bin"),
        (tiny_voices.kokoro, _with("voices.bin", b"x" * 50), r"voices\.bin has 50 bytes instead of 24480"),
        (
            tiny_voices.kokoro,
            lambda folder: tiny_voices.kokoro(folder, style_dim="a,b"),
            r"the metadata style_dim is invalid \(got 'a,b'\)",
        ),
        (
            tiny_voices.kokoro,
            lambda folder: tiny_voices.kokoro(folder, n_speakers="many"),
            r"the metadata n_speakers is invalid \(got 'many'\)",
        ),
        (tiny_voices.matcha, _without("vocoder.onnx"), "has no vocoder"),
        (
            tiny_voices.matcha,
            lambda folder: (folder / "model-steps-6.onnx").write_bytes((folder / "model-steps-3.onnx").read_bytes()),
            r"has several models \(model-steps-3\.onnx, model-steps-6\.onnx\); keep one of them",
        ),
    ],
)
def test_what_is_missing_is_one_sentence(
    tmp_path: Path, make: Callable[[Path], Path], harm: Callable[[Path], Any], reason: str
) -> None:
    folder = make(tmp_path)
    harm(folder)
    with pytest.raises(WeightsError, match=reason):
        sherpa_voice(folder)


@pytest.mark.parametrize(
    ("said", "lexicon", "reason"),
    [
        (
            {"comment": "piper"},
            b"hello h e l l o\n",
            r"lexicon\.txt has the format of sherpa-onnx before version 2 \('hel",
        ),
        (
            {},
            "hello 你 好\n".encode(),
            r"is not a lexicon of this voice: 'hello 你 好' has no phoneme of the voice's tok",
        ),
        ({}, b"", r"is not a lexicon of this voice: it has no words"),
        ({}, b"\xff\xfe\x00", r"lexicon\.txt cannot be read as UTF-8 text"),
        ({}, b'{"hello": "hello"}\n', r"is not a lexicon of this voice: .*has no phoneme"),
    ],
)
def test_a_lexicon_of_another_format_is_refused(
    tmp_path: Path, said: dict[str, Any], lexicon: bytes, reason: str
) -> None:
    folder = tiny_voices.vits(tmp_path, **said)
    (folder / "lexicon.txt").write_bytes(lexicon)
    with pytest.raises(WeightsError, match=reason):
        sherpa_voice(folder)


@pytest.mark.parametrize("line", ["hello || h e l l o\n", "hello || hel lo\n"])
def test_a_lexicon_with_marks_is_taken(tmp_path: Path, line: str) -> None:
    folder = tiny_voices.vits(tmp_path, comment="piper")
    (folder / "lexicon.txt").write_text(line)
    assert names(sherpa_voice(folder).lexicons) == ["lexicon.txt"]


def test_a_folder_that_is_nowhere_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="There is no folder"):
        sherpa_voice(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"tts\.sherpa needs `weights`"):
        sherpa_voice(None)
