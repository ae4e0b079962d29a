"""A package that a stage needs, where it is and where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.deployment.installation import install_command
from engine.errors import ConfigError
from engine.worker.libraries.installed import installed


def test_a_module_of_a_package_that_is_there() -> None:
    assert installed("tts.example", "engine.errors", "parley", "example").ConfigError is ConfigError


def test_without_the_package_the_command_that_installs_it_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        installed("tts.example", "parley_of_nowhere", "parley-of-nowhere", "example")
    assert str(refused.value) == f"tts.example needs the package parley-of-nowhere: {install_command('example')}"


def test_a_package_that_is_there_and_broken_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parley_broken.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"package parley-broken cannot be imported \(libgomp\.so\.1: cannot open"):
        installed("tts.example", "parley_broken", "parley-broken", "example")
    assert "parley_broken" not in sys.modules
