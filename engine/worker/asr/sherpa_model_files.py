"""Model folders as the project k2-fsa/sherpa-onnx publishes them: finds networks by name, tokens and languages.

sherpa-onnx terminates the process if metadata or tokens are missing, so these functions check them first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.errors import WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.libraries.sherpa import LANGUAGES


def network_of(folder: Path, part: str) -> Path | None:
    """Return the network of a part, or None.

    ``part`` "encoder" matches ``encoder.onnx``, ``encoder-epoch-99.int8.onnx`` and ``tiny.en-encoder.onnx``. A
    quantized network is preferred, because it is as accurate and faster.
    """
    named = re.compile(rf"(.*-)?{part}([-.].*)?\.onnx")
    return _preferred([path for path in folder.glob("*.onnx") if named.fullmatch(path.name)])


def only_network_of(folder: Path) -> Path | None:
    """Return the network of a single-network model, whatever its name, or None."""
    return _preferred([*folder.glob("*.onnx")])


def whole(folder: Path, parts: Mapping[str, Path | None]) -> dict[str, Path]:
    """Return all parts of a model. Raises WeightsError if any is missing."""
    if missing := [part for part, path in parts.items() if path is None or not path.exists()]:
        raise WeightsError(
            f"The model folder {folder} has no {', '.join(missing)}. Copy or download the complete folder."
        )
    return {part: path for part, path in parts.items() if path is not None}


def needed_metadata(
    network: Path, numbers: Iterable[str] = (), lists: Iterable[str] = (), wanted: str = "a sherpa-onnx model"
) -> Mapping[str, str]:
    """Return a network's metadata.

    Args:
        network: The ONNX file.
        numbers: Keys that must hold non-negative integers of at most six digits.
        lists: Keys that must not be empty.
        wanted: Name of the model type, for the error message.

    Raises:
        WeightsError: A required key is missing or not a number.
    """
    metadata = metadata_of(network)
    missing = [key for key in numbers if not re.fullmatch("[0-9]{1,6}", metadata.get(key, ""))]
    missing += [key for key in lists if not metadata.get(key)]
    if missing:
        raise WeightsError(f"{network} lacks the metadata {', '.join(missing)}, so it is not part of {wanted}.")
    return metadata


def tokens_of(folder: Path, count: int = 0) -> Path:
    """Return the path of the token table. Raises WeightsError if it is missing or has fewer than ``count`` tokens."""
    found = next(iter(sorted([*folder.glob("tokens.txt"), *folder.glob("*-tokens.txt")])), None)
    if found is None:
        raise WeightsError(f"The model folder {folder} has no tokens.txt.")
    try:
        lines = found.read_text("utf-8").split("\n")
        most = max((int(line.split()[-1]) for line in lines if line.strip()), default=-1)
    except ValueError as error:
        raise WeightsError(f"{found} is not a token table or is incomplete. Download it again.") from error
    if most + 1 < count:
        raise WeightsError(f"{found} has only {most + 1} of {count} tokens. Download it again.")
    return found


def languages_of(folder: Path, languages: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the given languages, or else the ones in the folder's name."""
    named = [part for part in re.split(r"[-_.]", folder.name) if part in LANGUAGES.values()]
    return tuple(languages) or tuple(named)


def in_capitals(tokens: Path) -> bool:
    """Return whether all tokens of a model are in capital letters."""
    return "".join(name for name in token_names(tokens) if name[0] != "<").isupper()


def token_names(tokens: Path) -> list[str]:
    """Return the tokens of a table, in order."""
    return [line.split()[0] for line in tokens.read_text("utf-8").split("\n") if line.strip()]


def _preferred(paths: Sequence[Path]) -> Path | None:
    return min(paths, key=lambda path: (".int8." not in path.name, path.name), default=None)
