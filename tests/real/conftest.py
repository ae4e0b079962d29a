"""Weights of real models, which the suite ``real`` reads from a cache folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parley" / "real"
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The file of SmolLM2 135M Instruct, whose chat template knows no tools."""
    path = CACHE / SMOLLM2
    if not path.is_file():
        pytest.skip(f"no weights: {path}")
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == SMOLLM2_SHA256, f"{path} is another file"
    return path


def folder_of(name: str, *paths: str) -> Path:
    """Return a model's folder in the cache. Skips the test if one of these files is not there."""
    folder = CACHE / name
    for path in paths:
        if not (folder / path).is_file():
            pytest.skip(f"no weights: {folder / path}")
    return folder


@pytest.fixture(scope="session")
def kokoro() -> Path:
    """The folder of ``kokoro-int8``, as `parley pull` makes it."""
    return folder_of("kokoro-int8", "kokoro-v1.0.int8.onnx", "vocab.json", "us_gold.json", "voices/af_heart.bin")


@pytest.fixture(scope="session")
def joe() -> Path:
    """The folder of ``piper-joe``."""
    return folder_of("piper-joe", "en_US-joe-medium.onnx", "en_US-joe-medium.onnx.json", "us_gold.json")


@pytest.fixture(scope="session")
def whisper() -> Path:
    """The folder of ``whisper-base``, in CTranslate2's format."""
    return folder_of("whisper-base", "model.bin", "config.json", "tokenizer.json", "vocabulary.txt")
