"""A model describes itself without being loaded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine import ConfigError, Engine, WeightsError, describe, load_config, parse_config, written_out
from engine.worker.process import stage_loader
from engine.worker.stage import Stage, StageConfig

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("model", ["script", "nano"])
async def test_a_model_describes_itself_as_the_engine_that_loaded_it_does(model: str) -> None:
    spec = replace(load_config(CONFIGS / f"{model}.yaml"), launcher="inline")
    async with Engine(spec) as engine:
        assert describe(spec) == engine.model


def test_nano_s_description_loads_nothing_that_takes_long() -> None:
    """Neither its networks nor the rules for its numbers."""
    code = (
        "import sys, engine\n"
        f"info = engine.describe(engine.load_config({str(CONFIGS / 'nano.yaml')!r}))\n"
        "assert 'slt' in str(info.voices)\n"
        "print('inflect' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "False\n"


def test_a_model_or_weights_that_are_not_there_are_told() -> None:
    spec = load_config(CONFIGS / "nano.yaml")
    with pytest.raises(ConfigError, match="did you mean 'nano'"):
        describe(replace(spec, model="nana"))
    tiny = load_config(CONFIGS / "qwen3_omni_tiny.yaml")
    with pytest.raises(WeightsError):
        describe(replace(tiny, weights="/no/such/folder"))


def test_without_workers_ears_are_alone_and_the_others_together() -> None:
    whole = written_out(parse_config("model: script"))
    assert [worker.stages for worker in whole.workers] == [("ears",), ("thinker", "talker", "code2wav")]
    assert [(stage.use, stage.name) for stage in whole.stages][:2] == [
        ("script.ears", "ears"),
        ("script.thinker", "thinker"),
    ]
    assert written_out(whole) == whole


def test_without_workers_a_blocking_stage_is_alone_too(tmp_path: Path) -> None:
    """It may be given up for a step that hangs, and takes a processor of its own."""
    (tmp_path / "slow.py").write_text(
        "from engine.worker.models.script import ScriptTalker\n"
        "import msgspec\n"
        "class STAGE(ScriptTalker):\n"
        "    @classmethod\n"
        "    def describe(cls, config):\n"
        "        return msgspec.structs.replace(ScriptTalker.describe(config), blocking=True)\n"
    )
    stages = "[{use: script.ears}, {use: script.thinker}, {use: ./slow.py}, {use: script.code2wav}]"
    whole = written_out(parse_config(f"stages: {stages}", tmp_path))
    assert [worker.stages for worker in whole.workers] == [("ears",), ("slow",), ("thinker", "code2wav")]


def test_a_model_is_short_for_its_stages_with_its_weights_and_options() -> None:
    whole = written_out(parse_config("model: script\nweights: w\noptions: {step_s: 1}"))
    assert {(stage.weights, stage.options["step_s"]) for stage in whole.stages} == {("w", 1)}


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        ("[{stages: [ears]}]", 'workers: no worker hosts "thinker", which script needs'),
        (
            "[{stages: [ears, mouth]}]",
            r"workers\[0\].stages: there is no stage 'mouth'; script has ears, thinker, talker",
        ),
    ],
)
def test_a_stage_without_a_worker_and_a_worker_without_a_stage_are_told(workers: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        written_out(parse_config(f"model: script\nworkers: {workers}"))


async def test_every_stage_is_made_with_its_own_weights_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """One place for all of them had a voice look for its weights in those of a language model."""
    places: dict[str, StageConfig] = {}

    def noted(use: str, name: str, order: int, place: StageConfig) -> Stage:
        places[name] = place
        return made(use, name, order, place)

    made = stage_loader.make
    monkeypatch.setattr(stage_loader, "make", noted)
    stages = "{use: script.thinker, options: {step_s: 0}}, {use: script.talker, weights: w}, {use: script.code2wav}"
    spec = replace(parse_config(f"stages: [{stages}]"), launcher="inline")
    async with Engine(spec) as engine:
        assert engine.model.abilities == {"image", "text", "tools", "speech"}
    found = {name: (place.weights, dict(place.options)) for name, place in places.items()}
    assert found == {"thinker": (None, {"step_s": 0}), "talker": (Path("w"), {}), "code2wav": (None, {})}
