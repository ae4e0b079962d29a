"""What holds for all language models that run in a worker."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from engine.deployment.registry import names
from engine.worker.llm.local import LocalThinker
from engine.worker.uses import stage_type

LOCAL = [
    use
    for use in (f"llm.{name}" for name in names("engine.worker.stages.llm"))
    if issubclass(stage_type(use), LocalThinker)
]


def test_all_local_stages_are_checked() -> None:
    assert {"llm.llamacpp", "llm.vllm"} <= set(LOCAL)


@pytest.mark.parametrize("use", LOCAL)
def test_clients_share_cached_prompts_only_with_themselves(use: str) -> None:
    stage: LocalThinker = Mock()
    alice, again, bob = (stage_type(use).salted(stage, {"messages": []}, owner) for owner in ("alice", "alice", "bob"))
    assert alice == again
    assert alice["cache_salt"] != bob["cache_salt"]
    assert "alice" not in str(alice), "the salt reveals no name of a key"
