"""Tiny checkpoints of the family, made once, and a recording."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.oracles.qwen3_tts import write_recording
from tests.oracles.tiny_qwen3_tts import Sizes, make


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sizes], Path]:
    """A checkpoint's folder by its sizes; made when it is first wanted."""
    torch.set_num_threads(1)
    return cache(lambda sizes: make(tmp_path_factory.mktemp(sizes.kind), sizes))


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recording(tmp_path_factory.mktemp("recording") / "anna.wav")
