"""The contract of every end-of-turn model, and what is particular to the one that listens."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.realtime.input.end_of_turn_choice import EndOfTurnChoice
from app.realtime.input.endpointing import WAITS_MS, SentenceEndOfTurn
from app.realtime.input.fused_end_of_turn import FusedEndOfTurn
from app.realtime.input.smart_turn import SmartTurn
from app.realtime.ports import EndOfTurnModel, EndpointingContext
from engine import ConfigError, ModelInfo
from tests.app.rig import silence, tone

WEIGHTS = Path("app/weights/smart-turn-v3.2-cpu.onnx")
HEARD = EndpointingContext("please enter your password", heard=True)


class Sure:
    """A model of sound that always says the same."""

    def __init__(self, probability: float) -> None:
        self._probability = probability

    def probability(self, pcm: np.ndarray) -> float:
        return self._probability


MODELS: dict[str, Callable[[], EndOfTurnModel]] = {
    "words": SentenceEndOfTurn,
    "smart_turn": lambda: FusedEndOfTurn(SmartTurn()),
    "fused with a fake": lambda: FusedEndOfTurn(Sure(0.7)),
}
MOMENTS = [
    EndpointingContext(),
    EndpointingContext("and", -1.0),
    EndpointingContext("What time is it?", 1.0, heard=True),
    *(replace(HEARD, sound=sound) for sound in (0.0, 0.5, 1.0)),
    replace(HEARD, sound_due=True),
    EndpointingContext(falling=1.0, sound=1.0),
]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> EndOfTurnModel:
    return MODELS[request.param]()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_probability_and_a_wait_are_within_their_bounds(model: EndOfTurnModel, moment: EndpointingContext) -> None:
    assert 0 <= model.probability(moment) <= 1
    waits = [model.silence_ms(moment, eagerness) for eagerness in ("high", "medium", "low")]
    assert waits == sorted(waits)
    for wait_ms, eagerness in zip(waits, ("high", "medium", "low"), strict=True):
        assert WAITS_MS[eagerness][0] <= wait_ms <= WAITS_MS[eagerness][2]


@pytest.mark.parametrize("pcm", [np.zeros(0, np.int16), silence(0.5), tone(1.0), tone(12.0)])
def test_any_sound_gets_a_probability_and_the_same_one_from_every_thread(
    model: EndOfTurnModel, pcm: np.ndarray
) -> None:
    with ThreadPoolExecutor(2) as threads:
        found = {*threads.map(model.listen, [pcm, pcm])}
    assert len(found) == 1
    assert 0 <= found.pop() <= 1


def test_a_request_that_the_asr_knows_is_judged_by_its_verdict_alone(model: EndOfTurnModel) -> None:
    whole = EndpointingContext("what time is it", whole=True, sound=0.0)
    half = EndpointingContext("what time", whole=False, sound=1.0)
    assert model.silence_ms(whole, "medium") == SentenceEndOfTurn().silence_ms(whole, "medium")
    assert model.silence_ms(half, "medium") == SentenceEndOfTurn().silence_ms(half, "medium")


def test_each_of_sound_words_and_intonation_changes_the_wait() -> None:
    model = FusedEndOfTurn(Sure(0.5))
    moment = EndpointingContext("Please enter your password", 0.4, heard=True, sound=0.9)

    def wait_ms(moment: EndpointingContext) -> int:
        return model.silence_ms(moment, "medium")

    assert wait_ms(replace(moment, sound=0.99)) < wait_ms(moment) < wait_ms(replace(moment, sound=0.1))
    assert wait_ms(replace(moment, words="Please enter your password.")) < wait_ms(moment)
    assert wait_ms(replace(moment, words="Please enter your")) > wait_ms(moment)
    assert wait_ms(replace(moment, falling=1.0)) < wait_ms(moment) < wait_ms(replace(moment, falling=-0.5))


def test_without_a_judgement_of_the_sound_a_fixed_silence_decides_or_a_longer_one() -> None:
    model = FusedEndOfTurn(Sure(0.5))
    middle = WAITS_MS["medium"][1]
    assert model.silence_ms(EndpointingContext("It is done.", 1.0, heard=True), "medium") == middle
    assert model.silence_ms(EndpointingContext("it is the", heard=True), "medium") > middle


def test_a_deployment_uses_the_model_that_listens_unless_its_asr_knows_whole_requests() -> None:
    choice = EndOfTurnChoice("auto")
    assert choice.model(ModelInfo(name="m")) is choice.models["smart_turn"]
    assert choice.model(ModelInfo(name="nano", hears_for="nano")) is choice.models["words"]
    always = EndOfTurnChoice("smart_turn")
    assert always.model(ModelInfo(name="nano", hears_for="nano")) is always.models["smart_turn"]
    assert EndOfTurnChoice("words").models.keys() == {"words"}


def test_another_file_of_the_same_signature_takes_smart_turns_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    shutil.copy(WEIGHTS, path)
    mine = EndOfTurnChoice(str(path)).model(ModelInfo(name="m"))
    assert mine.listen(tone(1.0)) == SmartTurn().probability(tone(1.0))


def bad_files(folder: Path) -> dict[str, str]:
    text = folder / "text.onnx"
    text.write_text("no model")
    return {
        "nonsense": "must be auto, smart_turn, words or the path of an ONNX file",
        str(folder / "missing.onnx"): "cannot be read",
        str(folder): "must be auto|cannot be read",
        str(text): "no valid ONNX file",
        "engine/weights/nano/ears/hush.onnx": "another signature",
    }


def test_a_bad_file_gets_one_sentence_that_names_the_setting(tmp_path: Path) -> None:
    for setting, reason in bad_files(tmp_path).items():
        with pytest.raises(ConfigError, match=rf"^server\.turns\.end_of_turn: .*({reason})") as caught:
            EndOfTurnChoice(setting)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "longest_ms"),
    [
        ("What does the heart do?", 1_200),
        ("Tell me about the history of bread,", 1_500),
        ("Tell me about the history of", 4_000),
        ("I would like a pizza and,", 4_000),
    ],
)
@pytest.mark.parametrize("sound", [None, 0.0])
def test_a_doubtful_sound_delays_a_whole_sentence_only_a_little(
    words: str, longest_ms: int, sound: float | None
) -> None:
    """Smart Turn is sure of many ends of synthetic voices that they are none."""
    model = FusedEndOfTurn(Sure(0.0))
    moment = EndpointingContext(words, -1.0, heard=True, sound=sound)
    assert model.silence_ms(moment, "medium") <= longest_ms
    held = replace(moment, sound=0.0)
    assert model.silence_ms(held, "medium") > 0.8 * longest_ms
    assert model.silence_ms(replace(held, heard=False), "medium") > 3_000, "the words may still tell"
