"""A path that is to be an interpreter for workers, and what is wrong with it, in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine import ConfigError
from engine.deployment.installation import ROOT, worker_install_command
from engine.ipc import interpreter


async def wrong_with(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        await interpreter.check(str(path))
    said = str(caught.value)
    assert said.startswith(f"workers[].python: {path} ")
    assert "\n" not in said
    return said.partition(f"{path} ")[2]


def program(folder: Path, *lines: str, mode: int = 0o755) -> Path:
    path = folder / "python"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(mode)
    return path


async def test_our_own_interpreter_can_run_a_worker() -> None:
    await interpreter.check(sys.executable)


async def test_one_that_is_not_there_or_no_program_is_told(tmp_path: Path) -> None:
    assert await wrong_with(tmp_path / "none") == "cannot be started: No such file or directory"
    assert await wrong_with(program(tmp_path, mode=0o644)) == "cannot be started: Permission denied"
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "python").write_bytes(b"\x7fELF and no more")
    assert await wrong_with(tmp_path / "python") == "cannot be started: Exec format error"


@pytest.mark.parametrize("line", ["exit 0", "exit 1", "echo hello", "kill -9 $$", "exec yes"])
async def test_a_program_that_is_no_python_is_told(line: str, tmp_path: Path) -> None:
    assert await wrong_with(program(tmp_path, line)) == "is not a Python interpreter"


async def test_one_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "ANSWER_S", 0.05)
    assert await wrong_with(program(tmp_path, "exec sleep 1000")) == "is not a Python interpreter"
    monkeypatch.setattr(interpreter, "ANSWER_S", 2.0)
    said = await wrong_with(program(tmp_path, "echo 'parley: python 3.12'", "exec sleep 1000"))
    assert said.startswith("cannot run a worker: it did not answer. Install")


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
async def test_one_that_is_too_old_is_told(version: str, tmp_path: Path) -> None:
    said = await wrong_with(program(tmp_path, f"echo 'parley: python {version}'", "exit 1"))
    assert said == f"is Python {version}; workers need Python 3.11 or newer"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Of an environment without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


@pytest.fixture
def python_with_parley(python: Path) -> Path:
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    for name in ("engine", "parley_voice"):
        (site / name).symlink_to(ROOT / name)
    return python


async def test_an_environment_without_parley_is_told_what_to_install(python: Path) -> None:
    said = await wrong_with(python)
    assert said.startswith("cannot run a worker: No module named 'parley_voice'. ")
    command = worker_install_command(str(python), ["msgspec", "numpy", "pyyaml"])
    assert said.endswith(f". Install what a worker imports: {command}")


async def test_an_environment_without_what_parley_imports_is_told_what_to_install(python_with_parley: Path) -> None:
    said = await wrong_with(python_with_parley)
    assert said.startswith("cannot run a worker: No module named 'msgspec'. Install what a worker imports: ")
