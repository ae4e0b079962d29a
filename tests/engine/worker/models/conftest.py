"""Tiny checkpoints and their reference, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedConfig

from tests.oracles.qwen3_omni import Oracle
from tests.oracles.tiny_qwen3_omni import Sizes, make

SIZES = {
    "wide": Sizes(shard="2MB"),
    "plain": Sizes(
        groups=8, codebook=128, thinker_layers=3, talker_layers=2, predictor_layers=1, experts=4, top_k=1, kv_heads=4,
        accept_layer=1, seed=1,
    ),
    "deep": Sizes(
        groups=4, codebook=512, thinker_layers=5, talker_layers=4, predictor_layers=3, experts=16, top_k=4, heads=6,
        kv_heads=1, accept_layer=4, seed=2,
    ),
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def no_config_is_written_out() -> Iterator[None]:
    """Transformers makes a text of each config that it reads, for a log that nobody reads: the most that it takes to
    read one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedConfig, "__repr__", object.__repr__)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_voice_is_warmed() -> Iterator[None]:
    """Skip the warm-up of voices: it takes as long as a test's answers. tests/engine/worker/talker tests it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.worker.talker.code2wav.WARM_S", 0.0)
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint's folder by name; made when it is first wanted."""
    torch.set_num_threads(1)
    return cache(lambda name: make(tmp_path_factory.mktemp(name), SIZES[name]))


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that loads sets the dtype of everything that torch makes meanwhile, also where another one computes:
    in life each has a process of its own."""

    async def directly(work: Any, *given: Any) -> Any:
        return work(*given)

    monkeypatch.setattr("asyncio.to_thread", directly)


@pytest.fixture(scope="session")
def oracle(checkpoint: Callable[[str], Path]) -> Callable[[str], Oracle]:
    """The reference of a checkpoint."""
    return cache(lambda name: Oracle(checkpoint(name)))
