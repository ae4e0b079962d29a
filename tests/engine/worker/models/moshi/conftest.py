"""Tiny checkpoints of the family, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.oracles.moshi import Oracle
from tests.oracles.tiny_moshi import Sizes, make


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sizes], Path]:
    """A checkpoint's folder by its sizes; made when it is first wanted."""
    torch.set_num_threads(1)
    return cache(lambda sizes: make(tmp_path_factory.mktemp("moshi"), sizes))


@pytest.fixture(scope="session")
def oracle(checkpoint: Callable[[Sizes], Path]) -> Callable[[Sizes], Oracle]:
    """The reference of a checkpoint."""
    return cache(lambda sizes: Oracle(checkpoint(sizes)))
