"""Streaming Moonshine models: folder check, and loading with the library moonshine-voice.

File names are the ones that Moonshine AI publishes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.installed import installed
from engine.worker.libraries.weights_folder import unloadable, weights_folder

USE = "asr.moonshine"
_CONFIG = "streaming_config.json"
_FILES = (
    _CONFIG,
    "tokenizer.bin",
    "frontend.ort",
    "encoder.ort",
    "adapter.ort",
    "cross_kv.ort",
    "decoder_kv.ort",
)
_TIMES = "decoder_kv_with_attention.ort"
"""Optional decoder network that also gives the time of each word."""
_SIZES = ("tiny", "base", "small", "medium")
_LANGUAGES = ("ar", "de", "en", "es", "ja", "ko", "uk", "vi", "zh")
"""Languages for which Moonshine publishes models."""
_OTHERS_TOKENS_PER_S = 13.0
"""Decoder token limit per second of audio for models other than English; the library's default is 6.5, which is too low
for other scripts.
"""


@dataclass(frozen=True, slots=True)
class MoonshineEars:
    """The files of a streaming Moonshine model that were found in a folder, and what the model can do."""

    folder: Path
    architecture: str
    """Name of a member of the library's ``ModelArch``."""
    languages: tuple[str, ...]
    times: bool
    """Whether the model reports the time of each word."""

    def transcriber(self) -> Any:
        """Return the library's transcriber. Raises ConfigError without the library, WeightsError for damaged files."""
        library, api = moonshine_library("transcriber"), moonshine_library("moonshine_api")
        # The library's voice activity detector is shared by all users and keeps state between them. Threshold 0
        # disables it.
        options = {"vad_threshold": "0", "return_audio_data": "false", "word_timestamps": str(self.times).lower()}
        if self.languages != ("en",):
            options["max_tokens_per_second"] = f"{_OTHERS_TOKENS_PER_S}"
        try:
            return library.Transcriber(str(self.folder), api.ModelArch[self.architecture], options=options)
        except (library.MoonshineError, RuntimeError) as error:
            raise unloadable(f"The speech model in {self.folder}", error) from error


def moonshine_library(module: str) -> Any:
    """Import a module of the package, never the one that opens a microphone.

    Raises ConfigError if the package is not installed or cannot be loaded.
    """
    try:
        return installed(USE, f"moonshine_voice.{module}", "moonshine-voice", "moonshine")
    except OSError as error:
        raise ConfigError(
            f"{USE}: moonshine-voice cannot be loaded on this machine; it needs glibc 2.34 or later ({error!s:.200})"
        ) from error


def moonshine_ears(folder: Path | None, languages: Sequence[str] = ()) -> MoonshineEars:
    """Find the speech model in a folder or its subfolders.

    ``languages`` overrides the languages in the folder's name. Raises ConfigError without a folder, WeightsError for
    missing or damaged files.
    """
    folder = weights_folder(folder, USE, "a Moonshine model")
    found = next(iter(sorted(path.parent for path in folder.rglob("tokenizer.bin"))), folder)
    if missing := [name for name in _FILES if not (found / name).is_file() or not (found / name).stat().st_size]:
        raise WeightsError(
            f"The model folder {found} has no {', '.join(missing)}. Download the complete streaming model."
        )
    _check_config(found / _CONFIG)
    named = _named(folder, found)
    size = next((size for size in _SIZES if size in named), "tiny")
    understood = tuple(languages) or tuple(dict.fromkeys(word for word in named if word in _LANGUAGES))
    return MoonshineEars(found, f"{size}_streaming".upper(), understood, (found / _TIMES).is_file())


def _named(folder: Path, found: Path) -> list[str]:
    """Return the words in the folder names, which include the model's size and language."""
    names = (folder.name, *found.relative_to(folder).parts)
    return [word for name in names for word in name.lower().replace("_", "-").split("-")]


def _check_config(path: Path) -> None:
    """Check the fields that the library needs, because it continues silently without them. Raises WeightsError."""
    try:
        config: Mapping[str, Any] = json.loads(path.read_bytes())
        whole = all(isinstance(config[key], int) and config[key] > 0 for key in ("depth", "decoder_dim", "vocab_size"))
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise WeightsError(f"{path} is not a Moonshine configuration or is incomplete. Download it again.")
