"""The tests among other versions: what an environment of them gets, and what is said where there can be none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from scripts import versions, wheel

PINS = ["torch==2.11.0", "transformers==5.17.0"]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What would be run, in a folder that is there."""
    found: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        found.append(command)
        return subprocess.CompletedProcess(command, 5 if "pytest" in command else 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(versions, "MADE", tmp_path)
    monkeypatch.setattr(wheel, "find", lambda name: f"/{name}" if name == "python3.12" else None)
    (tmp_path / "3.12-torch-2.11.0-transformers-5.17.0").mkdir()
    return found


def test_what_is_named_is_taken_and_all_else_as_it_is_pinned(commands: list[list[str]], tmp_path: Path) -> None:
    assert versions.main(["3.12", *reversed(PINS)]) == 5, "pytest's own"
    folder = tmp_path / "3.12-torch-2.11.0-transformers-5.17.0"
    wanted, held = ((folder / f"{name}.txt").read_text().splitlines() for name in ("requirements", "constraints"))
    names = [Requirement(line).name for line in wanted]
    assert set(PINS) <= set(wanted)
    assert names.count("torch") == names.count("transformers") == 1, "two of one would be a conflict"
    assert {"pytest", "compressed-tensors", "tokenizers", "numpy"} <= set(names)
    assert "parley" not in names
    assert any(line.startswith("numpy==") for line in held)
    assert not [line for line in held if line.startswith(("torch==", "transformers==", "setuptools=="))]
    *_, tests = commands
    assert tests[:3] == [str(folder / "bin" / "python"), "-m", "pytest"]
    assert tests[-2:] == ["tests/worker", "tests/engine"]
    assert any("not (slow or" in word for word in tests)
    made = len(commands)
    assert versions.main(["3.12", *PINS, "--", "tests/worker/nn"]) == 5
    assert len(commands) == made + 1, "it is there already"
    assert commands[-1][-1] == "tests/worker/nn"


@pytest.mark.usefixtures("commands")
def test_what_cannot_be_is_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ([], ["torch==2.11.0"], ["3.12", "torch"], ["3.12", "torch>=2"], ["3.12", "=="]):
        assert versions.main(arguments) == 2
        assert capsys.readouterr().err.startswith("Name a Python and versions, like this: 3.12 torch==")
    assert versions.main(["3.9", *PINS]) == 1
    assert capsys.readouterr().err.startswith("Python 3.9 is not here, on the PATH or in pyenv. Install it")

    def fails(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fails)
    assert versions.main(["3.12", *PINS]) == 1
    assert capsys.readouterr().err.startswith("The environment could not be made; pip's message above says why")
