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
