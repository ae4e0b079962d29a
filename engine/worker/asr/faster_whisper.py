"""Whisper models in CTranslate2 format: folder check, languages, and loading with faster-whisper.

The folder holds the files that Systran publishes (also for distilled models): `model.bin`, `config.json`,
`tokenizer.json`, and `vocabulary.txt` or `vocabulary.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from engine.deployment.config import build
from engine.errors import ConfigError, WeightsError
from engine.worker.asr.transcribing import EarsOptions
from engine.worker.libraries.installed import installed
from engine.worker.libraries.weights_folder import unloadable, weights_folder
from engine.worker.stage import StageConfig

USE = "asr.faster_whisper"
MULTILINGUAL = 51_865
"""Smallest vocabulary of a multilingual model; English-only models have fewer tokens."""
LONGEST_PROMPT = 223
"""Maximum prompt length in tokens: half of the decoder's context, minus the start-of-prompt token."""
_Kind = TypeVar("_Kind")
_MARKS = ("<|endoftext|>", "<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterWhisperOptions(EarsOptions):
    """Stage ``options`` of ``asr.faster_whisper``."""

    languages: tuple[str, ...] = ()
    """Languages that users speak (BCP 47). Of several, the model detects that of each clip. Empty: all languages of the
    model.
    """
    prompt: str = ""
    """Likely words, such as names and technical terms. Whisper continues in the style of the prompt."""
    beam_size: int = 5
    """Beam width of the decoder. A width of 1 saves little time and makes more errors in noise."""
    compute_type: str = "auto"
    """CTranslate2's compute type: int8, int8_float32, int8_float16, int16, float16, bfloat16 or float32. `auto` is int8
    on a CPU and float16 on a GPU, if supported.
    """


@dataclass(frozen=True, slots=True)
class WhisperFolder:
    """A complete model folder."""

    path: Path
    languages: tuple[str, ...]
    """Languages that the model supports."""
    marks: Mapping[str, int]
    """Ids of the special tokens."""

    def load(self, config: StageConfig, options: FasterWhisperOptions) -> Any:
        """Load the model with faster-whisper.

        Raises:
            ConfigError: The library is missing, or it does not support the device or the compute type.
            WeightsError: Files are damaged, or the tokenizer belongs to another model.
        """
        library = installed(USE, "faster_whisper", "faster-whisper", "whisper")
        device, index = _device(config.device)
        compute_type = _compute_type(options.compute_type, device)
        try:
            model = library.WhisperModel(
                str(self.path),
                device=device,
                device_index=index,
                compute_type=compute_type,
                cpu_threads=config.threads,
            )
        except Exception as error:  # the library tokenizers raises this type itself
            raise unloadable(f"The speech model in {self.path}", error) from error
        if any(model.hf_tokenizer.token_to_id(mark) != number for mark, number in self.marks.items()):
            raise WeightsError(f"{self.path}/tokenizer.json belongs to another model. Download all files of one model.")
        return model


def whisper_options(options: Mapping[str, Any]) -> FasterWhisperOptions:
    """Parse and check the stage's options. Raises ConfigError."""
    built = build(FasterWhisperOptions, dict(options), "options")
    if not 1 <= built.beam_size <= 20:
        raise ConfigError(f"options.beam_size: must be from 1 to 20 (got {built.beam_size})")
    return built


def whisper_folder(folder: Path | None) -> WhisperFolder:
    """Check a model folder. Raises ConfigError if none is given, WeightsError for missing or damaged files."""
    folder = weights_folder(folder, USE, "a Whisper model in CTranslate2's format")
    vocabulary = next((path for path in sorted(folder.glob("vocabulary.*")) if path.is_file()), None)
    files = {name: folder / name for name in ("model.bin", "config.json", "tokenizer.json")}
    missing = [name for name, path in files.items() if not path.is_file()]
    missing += [] if vocabulary else ["vocabulary.txt"]
    if missing or vocabulary is None:
        raise WeightsError(
            f"The model folder {folder} has no {', '.join(missing)}. Copy or download the complete folder."
        )
    tokens = _tokens(vocabulary)
    numbers = {token: number for number, token in enumerate(tokens)}
    if not_whisper := [mark for mark in _MARKS if mark not in numbers]:
        raise WeightsError(
            f"{vocabulary} has no {not_whisper[0]}. The file is incomplete, or does not belong to a Whisper model."
        )
    language_ids = _decoded(files["config.json"], _Config).lang_ids
    if len(tokens) < MULTILINGUAL:
        languages: tuple[str, ...] = ("en",)
    else:
        languages = tuple(tokens[number].strip("<|>") for number in language_ids if number < len(tokens))
    return WhisperFolder(folder, languages, {mark: numbers[mark] for mark in _MARKS})


class _Config(msgspec.Struct):
    """Fields of `config.json` that this module reads."""

    lang_ids: list[int]


def _tokens(path: Path) -> Sequence[str]:
    if path.suffix == ".json":
        return _decoded(path, list[str])
    try:
        return path.read_text("utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise _unreadable(path) from error


def _decoded(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise _unreadable(path) from error


def _unreadable(path: Path) -> WeightsError:
    return WeightsError(f"{path} cannot be read or is incomplete. Download it again.")


def _device(device: str) -> tuple[str, int]:
    """Return the library's name of a device, and its index."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"{USE} supports the CPU and NVIDIA GPUs, not {device}. Change the worker's `devices`.")
    return kind, int(index or 0)


def _compute_type(wanted: str, device: str) -> str:
    library = installed(USE, "ctranslate2", "faster-whisper", "whisper")
    try:
        known = sorted(library.get_supported_compute_types(device))
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{USE}: CTranslate2 cannot use the device {device} on this machine ({error!s:.120})"
        ) from error
    chosen = {"cpu": "int8", "cuda": "float16"}[device] if wanted == "auto" else wanted
    if chosen not in known and wanted != "auto":
        raise ConfigError(
            f"options.compute_type: {wanted!r:.40} is not supported on {device} (supported: {', '.join(known)})"
        )
    return chosen if chosen in known else "float32"
