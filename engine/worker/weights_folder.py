"""The folder that a stage's `weights` name: whether it is there, and what is said of files that cannot be loaded.

Knows no model and no library.
"""

from __future__ import annotations

from pathlib import Path

from engine.errors import ConfigError, WeightsError


def weights_folder(folder: Path | None, use: str, what: str) -> Path:
    """The folder of ``what``, as "a voice of Phonon". Raises ConfigError where ``use`` is given none, and WeightsError
    where the folder does not exist."""
    if folder is None:
        raise ConfigError(f"{use} needs `weights`: the folder of {what}")
    if not folder.is_dir():
        raise WeightsError(f"There is no folder {folder}: put {what} there, or correct `weights`.")
    return folder


def unloadable(what: str, error: Exception) -> WeightsError:
    """The error for files of which a library can make nothing; ``what`` begins the sentence, as "The voice in ..."."""
    why = " ".join(str(error).split())
    return WeightsError(f"{what} cannot be loaded ({why:.200}): fetch the files again.")
