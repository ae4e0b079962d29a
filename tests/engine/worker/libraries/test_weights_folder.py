"""The folder that a stage's `weights` name, and files that cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.weights_folder import unloadable, weights_folder


def test_the_folder_is_the_one_that_is_named(tmp_path: Path) -> None:
    assert weights_folder(tmp_path, "tts.example", "a voice") == tmp_path


def test_without_a_folder_it_is_said_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"^tts\.example needs `weights`: the folder of a voice of Example$"):
        weights_folder(None, "tts.example", "a voice of Example")


@pytest.mark.parametrize("file", [False, True])
def test_a_folder_that_there_is_not_is_one_sentence(tmp_path: Path, file: bool) -> None:
    path = tmp_path / "voice"
    if file:
        path.touch()
    with pytest.raises(WeightsError, match=f"^There is no folder {path}: put a voice there, or correct `weights`.$"):
        weights_folder(path, "tts.example", "a voice")


def test_a_librarys_reason_is_told_on_one_line_and_not_at_any_length() -> None:
    error = unloadable("The voice in /v", ValueError("bad\n  magic" + "!" * 1000))
    assert str(error) == f"The voice in /v cannot be loaded (bad magic{'!' * 191}): fetch the files again."
