"""Containers with mutated tables cost little, and raise nothing but MediaError."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.app.media import fuzz_containers

COMMAND = (sys.executable, "-m", "tests.app.media.fuzz_containers")


@pytest.mark.slow
def test_mutated_tables() -> None:
    """In a process of its own, whose peak of memory is its own. The number is small; the command takes more."""
    done = subprocess.run([*COMMAND, "--count", "2000", "--seed", "7"], capture_output=True, text=True, timeout=600)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unchanged_files_are_decoded() -> None:
    """Otherwise the mutated ones would be refused for another reason."""
    found = fuzz_containers.Findings()
    for file in fuzz_containers.originals():
        fuzz_containers._decode(file, found)
    assert not found.exceptions
    assert found.refused <= 4, "two recordings have no pictures, and the file by hand has no samples"
