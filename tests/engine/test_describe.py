"""A model describes itself without being loaded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine import ConfigError, Engine, WeightsError, describe, load_config

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("model", ["script", "nano"])
async def test_a_model_describes_itself_as_the_engine_that_loaded_it_does(model: str) -> None:
    spec = replace(load_config(CONFIGS / f"{model}.yaml"), launcher="inline")
    async with Engine(spec) as engine:
        assert describe(spec) == engine.model


def test_nano_s_description_loads_nothing_that_takes_long() -> None:
    """inflect alone takes longer to import than all the rest."""
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
