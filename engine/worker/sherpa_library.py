"""The library sherpa-onnx: how it is found, how it loads ears, and the names of languages in what is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from engine.worker.installed import installed
from engine.worker.weights_folder import unloadable

LANGUAGES = {
    "arabic": "ar", "cantonese": "yue", "catalan": "ca", "chinese": "zh", "czech": "cs", "danish": "da", "dutch": "nl",
    "english": "en", "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hindi": "hi", "hungarian": "hu",
    "indonesian": "id", "italian": "it", "japanese": "ja", "korean": "ko", "norwegian": "no", "persian": "fa",
    "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "slovak": "sk", "spanish": "es",
    "swedish": "sv", "thai": "th", "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip
"""Languages as BCP 47, by their English names."""


def sherpa_library(use: str) -> Any:
    """The package. Raises ConfigError, with what installs it, where there is none."""
    return installed(use, "sherpa_onnx", "sherpa-onnx", "local")


class EarsFolder(Protocol):
    """Ears as they lie in a folder."""

    @property
    def folder(self) -> Path: ...

    def recognizer(self, library: Any, threads: int) -> Any:
        """The library's recognizer of them."""
        ...


def recognizer_of(ears: EarsFolder, use: str, threads: int) -> Any:
    """The library's recognizer, loaded. Raises ConfigError without the library, WeightsError for damaged ears."""
    library = sherpa_library(use)
    try:
        return ears.recognizer(library, threads)
    except (RuntimeError, IndexError, ValueError) as error:
        raise unloadable(f"The ears in {ears.folder}", error) from error
