"""What holds for all language models that run in a worker."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from engine.deployment.registry import names
from engine.worker.llm.local import LocalThinker
from engine.worker.uses import stage_type

THINKERS: dict[str, Any] = {f"llm.{name}": stage_type(f"llm.{name}") for name in names("engine.worker.stages.llm")}
LOCAL = {use: stage for use, stage in THINKERS.items() if issubclass(stage, LocalThinker)}


def test_all_local_stages_are_checked() -> None:
    assert {"llm.llamacpp", "llm.vllm"} <= LOCAL.keys()


@pytest.mark.parametrize("use", LOCAL)
def test_clients_share_cached_prompts_only_with_themselves(use: str) -> None:
    stage: LocalThinker = Mock()
    alice, again, bob = (LOCAL[use].salted(stage, {"messages": []}, owner) for owner in ("alice", "alice", "bob"))
    assert alice == again
    assert alice["cache_salt"] != bob["cache_salt"]
    assert "alice" not in str(alice), "the salt reveals no name of a key"
