"""Our deployments of Qwen3-Omni: each hosts the whole line, and says what the reference says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, load_config
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, Folder, Reference, compare
from tests.oracles.talk import ask, request

CONFIGS = Path(__file__).parents[5] / "configs"


def deployed(name: str, folder: Path) -> Any:
    """A deployment of ours, on the CPU."""
    whole = load_config(CONFIGS / f"{name}.yaml")
    workers = tuple(replace(one, devices=("cpu",), dtype="float32", max_batch=2) for one in whole.workers)
    return replace(whole, weights=str(folder), workers=workers)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_two_workers_of_ours_run_in_processes_of_their_own(checkpoint: Folder, oracle: Reference) -> None:
    """Rows cross from one to the other. A single worker's process is what test_served asks, over HTTP."""
    reference, turns = oracle("plain"), PROMPTS["audio and image"]
    answer = reference.answer(turns, 8, 12)
    async with Engine(deployed("qwen3_omni_2gpu", checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", turns))
    compare(said, answer, reference.sound(said.codes))
    assert len(said.codes) == 12


def test_every_deployment_hosts_the_whole_line() -> None:
    for name in ("tiny", "1gpu", "2gpu", "80gb", "48gb", "2x48gb", "2x24gb"):
        found = load_config(CONFIGS / f"qwen3_omni_{name}.yaml")
        assert [stage for worker in found.workers for stage in worker.stages] == ["thinker", "talker", "code2wav"]
