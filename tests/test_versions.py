"""The tests among other versions: what an environment of them gets, and what is said where there can be none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

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
    folder = tmp_path / "3.12-torch-2.11.0-transformers-5.17.0"
    for name, needed in (
        ("torch-2.11.0", "setuptools<82"), ("setuptools-81.0.0", ""), ("nvidia_nccl-2.28.9", ""),
        ("transformers-5.17.0", "huggingface_hub<2.0,>=1.5.0"), ("huggingface_hub-1.33.0", "pydantic>=2"),
        ("pydantic-99.1", "pydantic-core==99.1"), ("pydantic_core-99.1", ""), ("numpy-99.0", ""),
    ):  # fmt: skip
        there = folder / "lib" / "python3.12" / "site-packages" / f"{name}.dist-info"
        there.mkdir(parents=True)
        head = "Metadata-Version: 2.1\nName: {}\nVersion: {}".format(*name.split("-"))
        needs = f"Requires-Dist: {needed}\n" if needed else ""
        (there / "METADATA").write_text(f'{head}\n{needs}Requires-Dist: numpy<1; extra == "old"\n')
    assert versions.main(["3.12", *reversed(PINS)]) == 5, "pytest's own"
    rest = (folder / "rest.txt").read_text().splitlines()
    names = {line.partition("==")[0] for line in rest}
    assert {"pytest", "compressed-tensors", "tokenizers", "numpy", "msgspec"} <= names
    assert {"pydantic", "pydantic-core"} <= names, "what gives way itself holds nothing"
    assert not names & {"torch", "transformers", "setuptools", "huggingface-hub"}, "others of them are there"
    made, pinned, *_, tests = commands[:2] + commands[-1:]
    assert made[:3] == ["/python3.12", "-m", "venv"]
    assert pinned[-2:] == list(reversed(PINS))
    assert tests[:3] == [str(folder / "bin" / "python"), "-m", "pytest"]
    assert tests[-1:] == ["tests/engine"]
    assert any("not (slow or" in word for word in tests)
    count = len(commands)
    assert versions.main(["3.12", *PINS, "--", "tests/engine/worker/nn"]) == 5
    assert len(commands) == count + 1, "it is there already"
    assert commands[-1][-1] == "tests/engine/worker/nn"


@pytest.mark.usefixtures("commands")
def test_what_cannot_be_is_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in ([], ["torch==2.11.0"], ["3.12", "torch"], ["3.12", "torch>=2"], ["3.12", "=="]):
        assert versions.main(arguments) == 2
        assert capsys.readouterr().err.startswith("Usage: python -m scripts.versions 3.12 torch==")
    assert versions.main(["3.9", *PINS]) == 1
    assert capsys.readouterr().err.startswith("Python 3.9 is not on the PATH or in pyenv. Install it")

    def fails(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fails)
    assert versions.main(["3.12", *PINS]) == 1
    assert capsys.readouterr().err.startswith("The environment could not be created; see pip's message above")
