"""Fixtures of the suite `real`: the folders of models whose weights were fetched (see `weights.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guard import tools
from tests.real.weights import CACHE, is_here, models

WeightsOf = Callable[[str], Path]


@pytest.fixture(scope="session")
def weights_of() -> WeightsOf:
    """Return the folder of a model's weights by its name; without them the test is skipped."""

    def folder(name: str) -> Path:
        if is_here(name):
            return CACHE / name
        missing = f"no weights: `python -m tests.real.weights` fetches {name}"
        if tools.WEIGHTS in tools.REQUIRED:
            pytest.fail(missing)
        pytest.skip(missing)

    return folder


@pytest.fixture(scope="session")
def smollm2(weights_of: WeightsOf) -> Path:
    """The file of SmolLM2 135M Instruct, whose chat template knows no tools."""
    (file,) = models()["smollm2-135m"].files
    return weights_of("smollm2-135m") / file.path


@pytest.fixture(scope="session")
def kokoro(weights_of: WeightsOf) -> Path:
    return weights_of("kokoro-int8")


@pytest.fixture(scope="session")
def joe(weights_of: WeightsOf) -> Path:
    """The folder of Piper's voice."""
    return weights_of("piper-joe")


@pytest.fixture(scope="session")
def whisper(weights_of: WeightsOf) -> Path:
    """The folder of Whisper base, in CTranslate2's format."""
    return weights_of("whisper-base")
