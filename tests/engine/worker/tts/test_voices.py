"""What voices in this process say of themselves, and whom a request may name."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError, RequestError
from engine.worker.stage import StageConfig
from engine.worker.tts.voices import asked_voice, can_say, named, voice_info

VOICES = [named("bm_george"), named("7"), named("af_heart", "en")]
READABLE = {
    "expr-voice-2-f": "Voice 2, a woman",
    "uncle_fu": "Uncle Fu",
    "alloy": "Alloy",
    "my-own McVoice": "My Own McVoice",
}


def test_a_voice_is_called_what_people_read_its_id_as() -> None:
    assert [voice.name for voice in VOICES] == ["George, a man", "Voice 7", "Heart, a woman"]
    assert [voice.language for voice in VOICES] == ["", "", "en"]
    assert {id: named(id).name for id in READABLE} == READABLE


@pytest.mark.parametrize(
    ("first", "ids"),
    [("", ["bm_george", "7", "af_heart"]), ("7", ["7", "bm_george", "af_heart"])],
)
def test_who_speaks_where_nobody_is_named_comes_first(first: str, ids: list[str]) -> None:
    info = voice_info(StageConfig(), VOICES, first, ("en",))
    assert [voice.id for voice in info.facets.voices] == ids
    assert asked_voice(None, info.facets.voices) == ids[0]
    assert asked_voice("af_heart", info.facets.voices) == "af_heart"


def test_nobody_of_another_name_speaks() -> None:
    with pytest.raises(ConfigError, match=r"options\.voice: there is no voice 'af_hart' \(did you mean 'af_heart'\?\)"):
        voice_info(StageConfig(), VOICES, "af_hart", ("en",))
    with pytest.raises(RequestError, match=r"There is no voice 'x' \(known: bm_george, 7, af_heart\)\."):
        asked_voice("x", VOICES)
    assert asked_voice(None, ()) == ""


@pytest.mark.parametrize(
    ("text", "languages", "says"),
    [
        ("你好", ("en",), False), ("你好, Ann", ("en", "de"), True), ("7!", ("en",), True), ("...", ("en",), False),
        ("你好", ("zh", "en"), True), ("你好", (), True),
    ],
)  # fmt: skip
def test_a_voice_of_european_languages_says_what_has_a_digit_or_a_latin_letter(
    text: str, languages: tuple[str, ...], says: bool
) -> None:
    assert can_say(text, languages) is says
