"""Checks of the folder that a stage's `weights` name, and the error for files that cannot be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.deployment.registry import names
from engine.errors import ConfigError, WeightsError

_LAYOUTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a CTranslate2 model": (("model.bin", "*vocabulary*"), ("asr.faster_whisper",)),
    "a sherpa-onnx model": (("*.onnx", "*tokens.txt"), ("asr.sherpa", "asr.sherpa_offline", "tts.sherpa")),
    "a streaming Moonshine model": (("streaming_config.json", "tokenizer.bin"), ("asr.moonshine",)),
}
"""How to recognise a library's model: a pattern for each of its files, and the stages that load it."""


def weights_folder(folder: Path | None, use: str, what: str) -> Path:
    """Return the folder of ``what``, for example "a voice of Phonon".

    Raises:
        ConfigError: The stage ``use`` has no `weights`.
        WeightsError: The folder does not exist, or has a model that only other stages load.
    """
    if folder is None:
        raise ConfigError(f"{use} needs `weights`: the folder of {what}")
    if not folder.is_dir():
        raise WeightsError(f"There is no folder {folder}: put {what} there, or correct `weights`.")
    found = [title for title, (files, _) in _LAYOUTS.items() if all(any(folder.glob(file)) for file in files)]
    if found and not any(use in _LAYOUTS[title][1] for title in found):
        raise WeightsError(f"The folder {folder} has {found[0]}, which {use} cannot load; {_loaders(found[0], use)}.")
    return folder


def _loaders(title: str, use: str) -> str:
    """Return advice on files with the layout ``title``: which stages of the same kind as ``use`` can load them."""
    kind = use.partition(".")[0]
    known = names(f"engine.worker.stages.{kind}")
    uses = [one for one in _LAYOUTS[title][1] if one.partition(".")[0] == kind and one.partition(".")[2] in known]
    return f"set use: {' or '.join(uses)}" if uses else f"no {kind} stage of this version does"


def unloadable(what: str, error: Exception) -> WeightsError:
    """Return the error for files that a library cannot load. ``what`` is the subject, like "The voice in ..."."""
    why = " ".join(str(error).split())
    return WeightsError(f"{what} cannot be loaded ({why:.200}): fetch the files again.")
