"""The library sherpa-onnx: how it is found, and the names of languages in what its project publishes."""

from __future__ import annotations

import importlib
from typing import Any

from engine.errors import ConfigError

LANGUAGES = {
    "arabic": "ar", "cantonese": "yue", "catalan": "ca", "chinese": "zh", "czech": "cs", "danish": "da", "dutch": "nl",
    "english": "en", "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hindi": "hi", "hungarian": "hu",
    "indonesian": "id", "italian": "it", "japanese": "ja", "korean": "ko", "norwegian": "no", "persian": "fa",
    "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "slovak": "sk", "spanish": "es",
    "swedish": "sv", "thai": "th", "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip
"""As BCP 47, by their English names."""


def sherpa_library(use: str) -> Any:
    """The package. Raises ConfigError, with what installs it, where there is none."""
    try:
        return importlib.import_module("sherpa_onnx")
    except ImportError as error:
        raise ConfigError(f"{use} needs the package sherpa-onnx: pip install 'parley[local]'") from error
