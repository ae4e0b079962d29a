"""The READMEs' code runs as it stands. A block is run when `<!-- test: run -->` stands above it; with `serve`, a
server runs meanwhile at the address that the block names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from app.bench import subject

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(?:<!-- test: (\w+) -->\n)?```(bash|python)\n(.*?)```", re.DOTALL)
TEXTS = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "app/README.md")]
BLOCKS = [block for text in TEXTS for block in BLOCK.findall(text)]
WRITTEN_ADDRESS = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def server() -> Generator[subject.Subject]:
    """A server that has not stopped since the last block, as a reader's has not."""
    with subject.running(None) as running:
        yield running


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a clone after `make serve`, into which a block may write."""
    for name, target in {"configs": ROOT / "configs", "tests": ROOT / "tests", ".venv": Path(sys.prefix)}.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


def run(language: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euc", code] if language == "bash" else [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, env=dict(os.environ))


@pytest.mark.parametrize(("language", "code"), [block[1:] for block in BLOCKS if block[0] == "run"])
def test_a_block_runs(language: str, code: str, clone: Path) -> None:
    result = run(language, code, clone)
    assert result.returncode == 0, result.stderr
    assert "first audio after" in result.stdout + result.stderr
    for name in re.findall(r"-o (\S+\.wav)", code):
        assert (clone / name).stat().st_size > 24_000  # half a second


@pytest.mark.parametrize(("language", "code"), [block[1:] for block in BLOCKS if block[0] == "serve"])
def test_a_client_runs_against_a_server(language: str, code: str, clone: Path, server: subject.Subject) -> None:
    assert WRITTEN_ADDRESS in code
    result = run(language, code.replace(WRITTEN_ADDRESS, server.url.removeprefix("ws://")), clone)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout.split()[0]) > 0.3


def test_every_python_block_is_run_and_no_other_is_left_out_by_accident() -> None:
    left_out = [code for kind, _, code in BLOCKS if not kind]
    assert len(left_out) == 1
    assert left_out[0].startswith("make serve")


def test_make_targets_that_the_documents_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z ]+):", makefile, re.MULTILINE))
    known = {name for target in targets for name in target.split()}
    for document in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        named = set(re.findall(r"`make ([a-z]+)", text))
        assert named
        assert named <= known, document
