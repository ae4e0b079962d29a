"""A folder of ears as the project k2-fsa/sherpa-onnx publishes them: its networks by their names, tokens, languages.

The library ends the process where the metadata of a network, or the table of tokens, is not what it needs: so both are
looked up here. Knows no kind of network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.errors import WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.libraries.sherpa import LANGUAGES


def network_of(folder: Path, part: str) -> Path | None:
    """The network of a part: ``encoder.onnx``, ``encoder-epoch-99.int8.onnx``, ``tiny.en-encoder.onnx``. Of a quantized
    and a full one the quantized, which is as good."""
    named = re.compile(rf"(.*-)?{part}([-.].*)?\.onnx")
    return _preferred([path for path in folder.glob("*.onnx") if named.fullmatch(path.name)])


def only_network_of(folder: Path) -> Path | None:
    """Ears of one network, whatever it is called."""
    return _preferred([*folder.glob("*.onnx")])


def whole(folder: Path, parts: Mapping[str, Path | None]) -> dict[str, Path]:
    """All parts of ears. Raises WeightsError for those that are not there: the folder is half copied."""
    if missing := [part for part, path in parts.items() if path is None or not path.exists()]:
        raise WeightsError(f"The model folder {folder} has no {', '.join(missing)}: copy or fetch all of it.")
    return {part: path for part, path in parts.items() if path is not None}


def needed_metadata(
    network: Path, numbers: Iterable[str] = (), lists: Iterable[str] = (), wanted: str = "a sherpa-onnx model"
) -> Mapping[str, str]:
    """A network's metadata. Raises WeightsError where a number or a list that the library needs is not in it."""
    metadata = metadata_of(network)
    missing = [key for key in numbers if not metadata.get(key, "").isdigit()]
    missing += [key for key in lists if not metadata.get(key)]
    if missing:
        raise WeightsError(f"{network} has no metadata on its {', '.join(missing)}: it is not part of {wanted}.")
    return metadata


def tokens_of(folder: Path, count: int = 0) -> Path:
    """The table of tokens, which has ``count`` of them at least. Raises WeightsError for none, or a cut one."""
    found = next(iter(sorted([*folder.glob("tokens.txt"), *folder.glob("*-tokens.txt")])), None)
    if found is None:
        raise WeightsError(f"The model folder {folder} has no tokens.txt.")
    try:
        lines = found.read_text("utf-8").split("\n")
        most = max((int(line.split()[-1]) for line in lines if line.strip()), default=-1)
    except ValueError as error:
        raise WeightsError(f"{found} is not a table of tokens, or is incomplete: fetch it again.") from error
    if most + 1 < count:
        raise WeightsError(f"{found} has {most + 1} of {count} tokens, so it is incomplete: fetch it again.")
    return found


def languages_of(folder: Path, languages: Sequence[str] = ()) -> tuple[str, ...]:
    """The languages that ears understand: those that are told, else those in the folder's name."""
    named = [part for part in re.split(r"[-_.]", folder.name) if part in LANGUAGES.values()]
    return tuple(languages) or tuple(named)


def in_capitals(tokens: Path) -> bool:
    """Whether ears write capital letters alone."""
    lines = tokens.read_text("utf-8").split("\n")
    return "".join(line.split()[0] for line in lines if line.strip() and line[0] != "<").isupper()


def _preferred(paths: Sequence[Path]) -> Path | None:
    return min(paths, key=lambda path: (".int8." not in path.name, path.name), default=None)
