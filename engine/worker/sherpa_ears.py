"""Streaming ears of sherpa-onnx as they lie in a folder: which model they are, their files, their languages.

The names of files are those that the project k2-fsa/sherpa-onnx publishes. The library ends the process where the
metadata of a network is not what it needs, so that is looked up here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, WeightsError
from engine.worker.onnx_metadata import metadata_of
from engine.worker.sherpa_library import LANGUAGES

FRAME_S = 0.01
WHOLE_CLIPS = "EncDec"
"""How the kinds of NeMo begin, which hear whole clips."""

_ZIPFORMER = (
    "encoder_dims", "query_head_dims", "value_head_dims", "num_heads", "num_encoder_layers", "cnn_module_kernels",
    "left_context_len", "T", "decode_chunk_len",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SherpaEars:
    """A streaming zipformer: ``networks`` are a transducer's encoder, decoder and joiner, or one that tells tokens by
    itself (CTC). ``chunk_s`` is how much sound a step of it looks at."""

    folder: Path
    networks: Mapping[str, Path]
    chunk_s: float
    languages: tuple[str, ...]
    capitals: bool
    """Whether it writes nothing but capital letters: its text is made lowercase."""

    def recognizer(self, library: Any, threads: int) -> Any:
        """The library's recognizer of it, which decodes many streams at once."""
        recognizer = library.OnlineRecognizer
        make = recognizer.from_transducer if "joiner" in self.networks else recognizer.from_zipformer2_ctc
        networks = {name: str(path) for name, path in self.networks.items()}
        return make(tokens=str(self.folder / "tokens.txt"), num_threads=threads, **networks)


def sherpa_ears(folder: Path | None, languages: Sequence[str] = ()) -> SherpaEars:
    """The ears in a folder. Raises WeightsError where something is missing."""
    folder = folder_of(folder, "asr.sherpa")
    networks = networks_of(folder)
    metadata = _checked(networks)
    known, capitals = written_in(folder, languages)
    return SherpaEars(folder, networks, FRAME_S * int(metadata["T"]), known, capitals)


def folder_of(folder: Path | None, use: str) -> Path:
    """Raises ConfigError or WeightsError where there is none."""
    if folder is None:
        raise ConfigError(f"{use} needs `weights`: the folder of ears, as sherpa-onnx publishes them")
    if not folder.is_dir():
        raise WeightsError(f"There is no folder {folder}: put ears of sherpa-onnx there, or correct `weights`.")
    if not (folder / "tokens.txt").is_file():
        raise WeightsError(f"The ears' folder {folder} has no tokens.txt.")
    return folder


def written_in(folder: Path, languages: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The languages that ears understand, and whether they write capital letters alone."""
    lines = (folder / "tokens.txt").read_text("utf-8").splitlines()
    letters = "".join(line.split()[0] for line in lines if line.strip() and line[0] != "<")
    named = [part for part in re.split(r"[-_.]", folder.name) if part in LANGUAGES.values()]
    return tuple(languages) or tuple(named), letters.isupper()


def networks_of(folder: Path) -> dict[str, Path]:
    """A transducer's three, or the only one; of a quantized and a full one the quantized, which is as good."""
    parts = {part: _preferred([*folder.glob(f"{part}*.onnx")]) for part in ("encoder", "decoder", "joiner")}
    found = {part: path for part, path in parts.items() if path is not None}
    if len(found) == len(parts):
        return found
    if found:
        missing = ", ".join(part for part in parts if part not in found)
        raise WeightsError(f"The ears' folder {folder} has no {missing}: only transducers and CTC are known.")
    only = _preferred([*folder.glob("*.onnx")])
    if only is None:
        raise WeightsError(f"The ears' folder {folder} has no encoder, decoder and joiner, nor a model.onnx.")
    return {"model": only}


def _preferred(paths: Sequence[Path]) -> Path | None:
    return min(paths, key=lambda path: (".int8." not in path.name, path.name), default=None)


def _checked(networks: Mapping[str, Path]) -> Mapping[str, str]:
    """What the network that hears says of itself. Raises WeightsError for one that is not of the known kinds."""
    hears = networks.get("encoder") or networks["model"]
    metadata = metadata_of(hears)
    wanted = "zipformer2" if "encoder" in networks else "zipformer2ctc"
    if (kind := metadata.get("model_type", wanted)) != wanted:
        hint = "; use: asr.sherpa_offline is for it" if kind.startswith(WHOLE_CLIPS) else ""
        raise WeightsError(f"{hears} is of the kind {kind!r:.40}; asr.sherpa knows {wanted} there{hint}.")
    missing = [key for key in _ZIPFORMER if not metadata.get(key)]
    if "decoder" in networks:
        said = metadata_of(networks["decoder"])
        missing += [key for key in ("vocab_size", "context_size") if not said.get(key)]
    if missing or not metadata["T"].isdigit():
        raise WeightsError(f"{hears} says nothing of its {', '.join(missing) or 'T'}: these are no streaming ears.")
    return metadata
