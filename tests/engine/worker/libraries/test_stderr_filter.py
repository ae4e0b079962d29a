"""What a native library writes about users' words stays out of the log; what others write does not."""

from __future__ import annotations

import os
import threading

import pytest

from engine.worker.libraries.stderr_filter import without_lines_of


def test_the_lines_of_a_library_are_left_out_and_others_come(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines_of(b"lib/csrc/"):
        os.write(2, b"/project/lib/csrc/a.cc:7 OOV secret\nanother's line\n/elsewhere/lib/csrc/b.cc:1 secret again\n")
        os.write(2, b"and one more\n")
    os.write(2, b"/project/lib/csrc/a.cc: behind it\n")
    assert capfd.readouterr().err == "another's line\nand one more\n/project/lib/csrc/a.cc: behind it\n"


def test_an_error_leaves_stderr_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> None:
        with without_lines_of(b"lib"):
            os.write(2, b"kept\n")
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        broken()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "kept\nafter\n"


def test_two_threads_take_turns(capfd: pytest.CaptureFixture[str]) -> None:
    def write(name: bytes) -> None:
        for _ in range(50):
            with without_lines_of(b"lib"):
                os.write(2, b"lib says " + name + b"\n" + name + b"\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == ["one"] * 50 + ["two"] * 50
