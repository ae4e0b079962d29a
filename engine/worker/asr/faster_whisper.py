"""A Whisper model in CTranslate2's format: the check of its folder, its languages, and how faster-whisper loads it.

The folder has the files that Systran publishes (also of distilled models): `model.bin`, `config.json`,
`tokenizer.json`, `vocabulary.txt` or `vocabulary.json`.
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
"""The least number of tokens of a model of many languages; English models have fewer."""
LONGEST_PROMPT = 223
"""Tokens of a prompt: half of the decoder's context, less the token that begins it."""
_Kind = TypeVar("_Kind")
_MARKS = ("<|endoftext|>", "<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterWhisperOptions(EarsOptions):
    """The ``options`` of the stage."""

    languages: tuple[str, ...] = ()
    """Languages that users speak, as BCP 47. With one, the model listens for it; with several, it detects which of them
    a clip is in. Empty: every language of the model."""
    prompt: str = ""
    """Words that are likely, such as names and terms. Whisper continues in the prompt's style."""
    beam_size: int = 1
    """Transcripts that are followed at once. 5 makes slightly fewer errors and takes about twice as long."""
    compute_type: str = "auto"
    """How CTranslate2 computes: int8, int8_float32, int8_float16, int16, float16, bfloat16 or float32. `auto` is int8
    on a CPU, float16 on a GPU."""


@dataclass(frozen=True, slots=True)
class WhisperFolder:
    """A folder that has all files of a model."""

    path: Path
    languages: tuple[str, ...]
    """The languages that the model knows."""
    marks: Mapping[str, int]
    """The numbers of tokens that are no text."""

    def load(self, config: StageConfig, options: FasterWhisperOptions) -> Any:
        """Return the library's model.

        Raises ConfigError for a missing library, or a device or type that it cannot compute on, WeightsError for
        damaged files.
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
            raise WeightsError(f"{self.path}/tokenizer.json belongs to another model: fetch all files of one model.")
        return model


def whisper_options(options: Mapping[str, Any]) -> FasterWhisperOptions:
    """Return the options of the stage. Raises ConfigError."""
    built = build(FasterWhisperOptions, dict(options), "options")
    if not 1 <= built.beam_size <= 20:
        raise ConfigError(f"options.beam_size: must be from 1 to 20 (got {built.beam_size})")
    return built


def whisper_folder(folder: Path | None) -> WhisperFolder:
    """Check a model's folder. Raises ConfigError without one, WeightsError for missing or damaged files."""
    folder = weights_folder(folder, USE, "a Whisper model in CTranslate2's format")
    vocabulary = next((path for path in sorted(folder.glob("vocabulary.*")) if path.is_file()), None)
    files = {name: folder / name for name in ("model.bin", "config.json", "tokenizer.json")}
    missing = [name for name, path in files.items() if not path.is_file()]
    missing += [] if vocabulary else ["vocabulary.txt"]
    if missing or vocabulary is None:
        raise WeightsError(f"The model folder {folder} has no {', '.join(missing)}: copy or fetch all of it.")
    tokens = _tokens(vocabulary)
    numbers = {token: number for number, token in enumerate(tokens)}
    if not_whisper := [mark for mark in _MARKS if mark not in numbers]:
        raise WeightsError(
            f"{vocabulary} has no {not_whisper[0]}, so it is incomplete, or of another model than Whisper."
        )
    language_ids = _decoded(files["config.json"], _Config).lang_ids
    if len(tokens) < MULTILINGUAL:
        languages: tuple[str, ...] = ("en",)
    else:
        languages = tuple(tokens[number].strip("<|>") for number in language_ids if number < len(tokens))
    return WhisperFolder(folder, languages, {mark: numbers[mark] for mark in _MARKS})


class _Config(msgspec.Struct):
    """The part of `config.json` that is read here."""

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
    return WeightsError(f"{path} cannot be read, or is incomplete: fetch it again.")


def _device(device: str) -> tuple[str, int]:
    """Return the library's name of a device, and its number."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda"):
        raise ConfigError(
            f"{USE} computes on the cpu or on NVIDIA GPUs, not on {device}: correct the worker's `devices`"
        )
    return kind, int(index or 0)


def _compute_type(wanted: str, device: str) -> str:
    library = installed(USE, "ctranslate2", "faster-whisper", "whisper")
    try:
        known = sorted(library.get_supported_compute_types(device))
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"{USE}: CTranslate2 cannot use the device {device} here ({error!s:.120})") from error
    chosen = {"cpu": "int8", "cuda": "float16"}[device] if wanted == "auto" else wanted
    if chosen not in known and wanted != "auto":
        raise ConfigError(
            f"options.compute_type: {wanted!r:.40} cannot be used on {device} (known: {', '.join(known)})"
        )
    return chosen if chosen in known else "float32"
