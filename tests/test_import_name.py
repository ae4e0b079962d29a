"""`parley_voice` in a clone: another name for the same modules."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["app", "app.client", "engine", "engine.chunk", "engine.worker.streamed", "web"]


@pytest.mark.parametrize("name", MODULES)
def test_both_names_are_one_module(name: str) -> None:
    module = importlib.import_module(name)
    assert importlib.import_module(f"parley_voice.{name}") is module
    assert module.__name__ == name
    assert module.__spec__ is not None
    assert module.__spec__.name == name


def test_a_module_that_does_not_exist_is_not_found() -> None:
    assert importlib.util.find_spec("parley_voice.engine.no_such") is None
    with pytest.raises(ModuleNotFoundError, match=r"parley_voice\.no_such"):
        importlib.import_module("parley_voice.no_such")


@pytest.mark.parametrize("first", ["parley_voice.engine.chunk", "engine.chunk"])
def test_the_order_of_the_names_does_not_matter(first: str, tmp_path: Path) -> None:
    code = (
        f"import {first}; from engine.core import Request; import parley_voice.engine.core, engine.chunk\n"
        "assert parley_voice.engine.core.Request is Request\n"
        "assert parley_voice.engine.chunk is engine.chunk"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [("app", ["--version"], "parley "), ("engine.worker", ["--help"], "usage: parley_voice.engine.worker")],
)
def test_python_runs_a_module_by_this_name(module: str, arguments: list[str], said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-P", "-m", f"parley_voice.{module}", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(said), done.stderr
