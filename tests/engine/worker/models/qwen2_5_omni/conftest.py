"""Tiny checkpoints of this family and their reference, made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.oracles.qwen2_5_omni import Oracle
from tests.oracles.tiny_qwen2_5_omni import Sizes, make

SIZES = {
    "plain": Sizes(),
    "tied": Sizes(tied=True, seed=1, shard="1MB"),
    "wide": Sizes(width=96, heads=6, kv_heads=3, seed=2),
    "deep": Sizes(thinker_layers=5, talker_layers=4, seed=3),
    "one head of keys": Sizes(kv_heads=1, dit_layers=5, seed=4),
    "shallow": Sizes(thinker_layers=1, talker_layers=1, seed=5),
}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint's folder by name; made when it is first wanted."""
    torch.set_num_threads(1)
    return cache(lambda name: make(tmp_path_factory.mktemp("qwen2_5"), SIZES[name]))


@pytest.fixture(scope="session")
def oracle(checkpoint: Callable[[str], Path]) -> Callable[[str], Oracle]:
    """The reference of a checkpoint."""
    return cache(lambda name: Oracle(checkpoint(name)))
