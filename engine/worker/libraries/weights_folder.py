"""Checks of the folder that a stage's `weights` name, and the error for files that cannot be loaded."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ConfigError, WeightsError


def weights_folder(folder: Path | None, use: str, what: str) -> Path:
    """Return the folder of ``what``, for instance "a voice of Phonon".

    Raises ConfigError if the stage ``use`` has no `weights`, WeightsError if the folder does not exist.
    """
    if folder is None:
        raise ConfigError(f"{use} needs `weights`: the folder of {what}")
    if not folder.is_dir():
        raise WeightsError(f"There is no folder {folder}: put {what} there, or correct `weights`.")
    return folder


def unloadable(what: str, error: Exception) -> WeightsError:
    """Return the error for files that a library cannot load; ``what`` is the subject, as "The voice in ..."."""
    why = " ".join(str(error).split())
    return WeightsError(f"{what} cannot be loaded ({why:.200}): fetch the files again.")
