"""Kokoro and Piper voices in their authors' format, converted for sherpa-onnx.

The authors' networks lack the metadata that the library reads, and there is no ``tokens.txt`` or ``voices.bin``. These
are generated from the published files in a temporary folder while the library loads the voice. The published files stay
unchanged, so their hashes remain valid.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from engine.errors import WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of, with_metadata

FIRST = "af_heart"
"""Kokoro's best voice according to its authors."""
KOKORO_RATE_HZ = 24_000
KOKORO_STYLES = (510, 1, 256)
"""Shape of a voice file: one style vector per number of tokens, float32."""
STYLE_BYTES = 4 * 510 * 256


@dataclass(frozen=True, slots=True)
class PublishedVoice:
    """Published files of a voice, with the metadata and tokens that the library needs."""

    family: str
    model: Path
    metadata: Mapping[str, str]
    tokens: Mapping[str, int]
    styles: tuple[Path, ...] = ()
    """One style file per Kokoro voice."""

    @contextmanager
    def for_library(self) -> Generator[Path]:
        """Write the library's files to a temporary folder, which is deleted after the block."""
        with TemporaryDirectory(prefix="parley-voice-") as name:
            folder = Path(name)
            with self.model.open("rb") as source, (folder / "model.onnx").open("wb") as model:
                shutil.copyfileobj(source, model, 1 << 20)
                model.write(with_metadata(self.metadata))
            lines = (f"{token} {number}\n" for token, number in self.tokens.items() if token != "\n")
            (folder / "tokens.txt").write_text("".join(lines), encoding="utf-8")
            if self.styles:
                (folder / "voices.bin").write_bytes(b"".join(path.read_bytes() for path in self.styles))
            yield folder


def published_in(folder: Path) -> PublishedVoice | None:
    """Return the published voice in a folder, or None. Raises WeightsError if its files are damaged."""
    models = [path for path in sorted(folder.glob("*.onnx")) if "sample_rate" not in metadata_of(path)]
    if len(models) != 1:
        return None
    settings = Path(f"{models[0]}.json")
    if settings.is_file():
        return _piper(models[0], settings)
    if (folder / "vocab.json").is_file() and [*folder.glob("voices/*.bin")]:
        return _kokoro(models[0], folder)
    return None


def _kokoro(model: Path, folder: Path) -> PublishedVoice:
    styles = sorted(folder.glob("voices/*.bin"), key=lambda path: (path.stem != FIRST, path.stem))
    for path in styles:
        if path.stat().st_size != STYLE_BYTES:
            raise WeightsError(f"{path} has {path.stat().st_size} bytes instead of {STYLE_BYTES}. Download it again.")
    tokens = _read(folder / "vocab.json")
    metadata = {
        "model_type": "kokoro",
        "language": "English",
        "has_espeak": "1",
        "sample_rate": str(KOKORO_RATE_HZ),
        "version": "2",
        "voice": "en-us",
        "style_dim": ",".join(map(str, KOKORO_STYLES)),
        "n_speakers": str(len(styles)),
        "speaker_names": ",".join(path.stem for path in styles),
    }
    return PublishedVoice("kokoro", model, metadata, _tokens(tokens.get("vocab", tokens), model), tuple(styles))


def _piper(model: Path, path: Path) -> PublishedVoice:
    settings = _read(path)
    try:
        metadata = {
            "model_type": "vits",
            "comment": "piper",
            "language": settings["language"]["name_english"],
            "dataset": str(settings.get("dataset", "")),
            "voice": settings["espeak"]["voice"],
            "has_espeak": "1",
            "version": "1",
            "n_speakers": str(settings["num_speakers"]),
            "sample_rate": str(settings["audio"]["sample_rate"]),
        }
        numbers = {token: ids[0] for token, ids in settings["phoneme_id_map"].items()}
    except (KeyError, TypeError, IndexError, AttributeError):
        raise WeightsError(f"{path} does not describe a Piper voice. Download it again.") from None
    return PublishedVoice("vits", model, metadata, _tokens(numbers, model))


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        raise WeightsError(f"{path} is not a JSON object. Download it again.") from None


def _tokens(found: object, model: Path) -> dict[str, int]:
    try:
        return msgspec.convert(found, dict[str, int])
    except msgspec.ValidationError:
        raise WeightsError(f"The voice {model} has an invalid token table. Download it again.") from None
