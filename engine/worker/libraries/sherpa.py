"""The library sherpa-onnx: its import, the loading of speech recognisers, and language names in published files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from engine.worker.libraries.installed import installed
from engine.worker.libraries.weights_folder import unloadable

LANGUAGES = {
    "arabic": "ar", "cantonese": "yue", "catalan": "ca", "chinese": "zh", "czech": "cs", "danish": "da", "dutch": "nl",
    "english": "en", "finnish": "fi", "french": "fr", "german": "de", "greek": "el", "hindi": "hi", "hungarian": "hu",
    "indonesian": "id", "italian": "it", "japanese": "ja", "korean": "ko", "norwegian": "no", "persian": "fa",
    "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru", "slovak": "sk", "spanish": "es",
    "swedish": "sv", "thai": "th", "turkish": "tr", "ukrainian": "uk", "vietnamese": "vi",
}  # fmt: skip
"""BCP 47 tags of languages by their English names."""


def sherpa_library(use: str) -> Any:
    """Return the package. Raises ConfigError, with the command that installs it, if it is missing."""
    return installed(use, "sherpa_onnx", "sherpa-onnx", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class SherpaModel:
    """A speech recognition model in a folder. The method ``factory`` of the library's class ``recognizer`` loads it."""

    recognizer: ClassVar[str]
    folder: Path
    factory: str
    arguments: Mapping[str, Any]
    """The arguments of the factory."""
    generated: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further arguments that name files which the folder lacks: the content of each, for a temporary file."""
    languages: tuple[str, ...]
    capitals: bool = False
    """Whether it only writes capital letters. Its text is then converted to lowercase."""


def recognizer_of(model: SherpaModel, use: str, threads: int) -> Any:
    """Load a model. Raises ConfigError if the library is missing, WeightsError for damaged files."""
    make = getattr(getattr(sherpa_library(use), model.recognizer), model.factory)
    with TemporaryDirectory() as folder:
        paths = {name: Path(folder, name) for name in model.generated}
        for name, path in paths.items():
            path.write_text(model.generated[name], encoding="utf-8")
        files = {name: str(path) for name, path in paths.items()}
        try:
            return make(num_threads=threads, **model.arguments, **files)
        except (RuntimeError, IndexError, ValueError) as error:
            raise unloadable(f"The speech model in {model.folder}", error) from error
