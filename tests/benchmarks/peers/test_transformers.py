"""transformers as a peer: a package that only those who compare need."""

from __future__ import annotations

import sys

import pytest

from benchmarks.peers.peer import Subject
from benchmarks.peers.transformers import Transformers
from engine.errors import ConfigError


def test_without_the_package_it_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"benchmarks\.against needs the package transformers: .*pip install"):
        Transformers(Subject(model="qwen3_omni", weights=None, threads=1, slots=1, options={}))
