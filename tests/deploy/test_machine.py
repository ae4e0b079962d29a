"""What `make containers` says of a command that does not do its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.containers.machine import Failed, call, call_logged


def test_a_command_that_fails_is_told_with_its_last_words_and_logged(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"sh -c echo .* exited with 3:\nsaid\nwarned"):
        call_logged(["sh", "-c", "echo said; echo warned >&2; exit 3"], tmp_path / "log")
    assert (tmp_path / "log").read_text() == "said\nwarned\n"
    assert call(["sh", "-c", "echo said $MORE"], MORE="more") == "said more"


def test_a_command_that_takes_too_long_is_one_sentence() -> None:
    with pytest.raises(Failed, match=r"^sleep 60 … took longer than 0\.1 s, and was killed$"):
        call(["sleep", "60"], 0.1)
