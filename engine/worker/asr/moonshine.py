"""Streaming ears of Moonshine as they lie in a folder, and the library moonshine-voice that loads them.

The names of files are those that Moonshine AI publishes. Knows no request and no schedule.
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
"""The network that gives the time of each word, beside those."""
_SIZES = ("tiny", "base", "small", "medium")
_LANGUAGES = ("ar", "de", "en", "es", "ja", "ko", "uk", "vi", "zh")
"""Languages that Moonshine is published for."""
_OTHERS_TOKENS_PER_S = 13.0
"""Languages that are not written in Latin letters take more tokens for a second than English's 6.5."""


@dataclass(frozen=True, slots=True)
class MoonshineEars:
    """``architecture`` is one of the library's ModelArch."""

    folder: Path
    architecture: str
    languages: tuple[str, ...]
    times: bool
    """Whether it tells when each word was said."""

    def transcriber(self) -> Any:
        """A transcriber of the library. Raises ConfigError without the library, WeightsError for damaged ears."""
        library, api = moonshine_library("transcriber"), moonshine_library("moonshine_api")
        # Its own detector of voices is one for all users, and remembers the last one's: with 0 all is taken for speech.
        options = {"vad_threshold": "0", "return_audio_data": "false", "word_timestamps": str(self.times).lower()}
        if self.languages != ("en",):
            options["max_tokens_per_second"] = f"{_OTHERS_TOKENS_PER_S}"
        try:
            return library.Transcriber(str(self.folder), api.ModelArch[self.architecture], options=options)
        except (library.MoonshineError, RuntimeError) as error:
            raise unloadable(f"The speech model in {self.folder}", error) from error


def moonshine_library(module: str) -> Any:
    """A module of the package; never the one that opens a microphone. Raises ConfigError where it is not there."""
    try:
        return installed(USE, f"moonshine_voice.{module}", "moonshine-voice", "moonshine")
    except OSError as error:
        raise ConfigError(
            f"{USE}: moonshine-voice cannot be loaded here, it needs glibc 2.34 ({error!s:.200})"
        ) from error


def moonshine_ears(folder: Path | None, languages: Sequence[str] = ()) -> MoonshineEars:
    """The speech model in a folder, or in one beneath it. Raises WeightsError where something is missing."""
    folder = weights_folder(folder, USE, "a Moonshine model")
    found = next(iter(sorted(path.parent for path in folder.rglob("tokenizer.bin"))), folder)
    if missing := [name for name in _FILES if not (found / name).is_file() or not (found / name).stat().st_size]:
        raise WeightsError(f"The model folder {found} has no {', '.join(missing)}; fetch all of a streaming model.")
    _check_config(found / _CONFIG)
    named = _named(folder, found)
    size = next((size for size in _SIZES if size in named), "tiny")
    understood = tuple(languages) or tuple(dict.fromkeys(word for word in named if word in _LANGUAGES))
    return MoonshineEars(found, f"{size}_streaming".upper(), understood, (found / _TIMES).is_file())


def _named(folder: Path, found: Path) -> list[str]:
    """The words in the names of the folders, which tell a model's size and language."""
    names = (folder.name, *found.relative_to(folder).parts)
    return [word for name in names for word in name.lower().replace("_", "-").split("-")]


def _check_config(path: Path) -> None:
    """The library would go on without what is not in it."""
    try:
        config: Mapping[str, Any] = json.loads(path.read_bytes())
        whole = all(isinstance(config[key], int) and config[key] > 0 for key in ("depth", "decoder_dim", "vocab_size"))
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise WeightsError(f"{path} is not a Moonshine configuration, or is incomplete: fetch it again.")
