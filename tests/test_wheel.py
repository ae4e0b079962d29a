"""The wheel in an environment of its own, used in a project whose packages have the names of the repository's."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import wave
from pathlib import Path

import pytest

from scripts import wheel


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, which finds the other packages where the tests run."""
    folder = tmp_path_factory.mktemp("wheel")
    built = wheel.build(folder, sys.executable, "--no-build-isolation")
    fresh = folder / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    pip = [sys.executable, "-m", "pip", "--python", fresh / "bin" / "python", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--quiet", "--disable-pip-version-check", built], check=True)
    (site,) = fresh.glob("lib/python*/site-packages")
    (site / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return fresh


@pytest.mark.slow
def test_the_wheel_installs_one_package(environment: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    assert {one.name for one in site.iterdir() if "-" not in one.name} == {"parley_voice", "rest.pth"}
    assert not (environment / "share" / "parley").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_works_in_a_project_with_packages_of_the_same_names(environment: Path, tmp_path: Path) -> None:
    folder = wheel.strange(tmp_path / "elsewhere")
    wheel.run(environment, folder)
    for name in ("said.wav", "served.wav", "stage.wav"):
        with wave.open(str(folder / name)) as said:
            assert said.getnframes() > said.getframerate()


@pytest.mark.slow
def test_a_stage_file_with_the_repository_s_names_is_refused_in_one_sentence(environment: Path, tmp_path: Path) -> None:
    folder = wheel.strange(tmp_path / "elsewhere")
    stage = folder / "hours.py"
    stage.write_text(stage.read_text().replace("parley_voice.", ""))
    command = [environment / "bin" / "parley", "ask", "-c", "shop.yaml", "--text", wheel.QUESTION]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("in the package parley_voice: write parley_voice.engine instead of engine\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_control_the_decoys_raise(environment: Path, tmp_path: Path) -> None:
    folder = wheel.strange(tmp_path / "elsewhere")
    for name in wheel.DECOYS:
        done = subprocess.run(
            [environment / "bin" / "python", "-c", f"import {name}"], cwd=folder, capture_output=True, text=True
        )
        assert f"this is another {name}" in done.stderr


def test_an_interpreter_that_is_not_here_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert wheel.main(["python1.5"]) == 0
    assert capsys.readouterr().out == "python1.5: not installed\n"


def test_why_it_does_not_work_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(folder: Path, python: str) -> Path:
        raise subprocess.CalledProcessError(1, [python], stderr=b"a line\nno such thing\n")

    monkeypatch.setattr(wheel, "build", broken)
    assert wheel.tried("true", tmp_path) == "no such thing"  # in place of a Python: it makes no environment
