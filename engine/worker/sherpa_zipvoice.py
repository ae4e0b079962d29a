"""ZipVoice of sherpa-onnx as it lies in a folder: a voice that has none of its own, and speaks as recordings do.

Knows no stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.core import Voice
from engine.errors import ConfigError, WeightsError
from engine.worker.onnx_metadata import metadata_of
from engine.worker.reference import Clone

LANGUAGES = ("zh", "en")
"""What the published one was trained with."""
STEPS = 4
"""Of its decoder, for a sound: as its project recommends for the distilled one."""


def encoder_of(folder: Path) -> Path | None:
    """The first of its two networks, if that lies there."""
    found = sorted(folder.glob("encoder*.onnx"))
    return found[0] if found and [*folder.glob("decoder*.onnx")] else None


def decoder_of(folder: Path) -> tuple[Path, Path, int]:
    """The second one, its vocoder, and the rate of its sound in Hz. Raises WeightsError where something is missing."""
    for name in ("tokens.txt", "lexicon.txt"):
        if not (folder / name).is_file():
            raise WeightsError(f"The voice's folder {folder} has no {name}.")
    decoder, vocoders = sorted(folder.glob("decoder*.onnx"))[0], sorted(folder.glob("vocos*.onnx"))
    if not vocoders:
        raise WeightsError(f"The voice's folder {folder} has no vocoder: put vocos_24khz.onnx beside the model.")
    said = metadata_of(decoder).get("sample_rate", "24000")
    if not said.isdecimal() or not 4_000 <= int(said) <= 192_000:
        raise WeightsError(f"{decoder} has a sample_rate of {said!r:.40}, which is none of speech.")
    return decoder, vocoders[0], int(said)


def voices_of(clones: Sequence[Clone], folder: Path) -> tuple[Voice, ...]:
    """Those of recordings. Raises ConfigError where there is none, or what is said in one is not told."""
    if not clones:
        raise ConfigError(f"options.clones: ZipVoice in {folder} has no voice of its own; name a recording of one")
    for i, clone in enumerate(clones):
        if not clone.text.strip():
            raise ConfigError(f"options.clones[{i}].text: say word by word what is spoken in {clone.reference}")
    return tuple(Voice(clone.name, clone.name.replace("_", " ").title()) for clone in clones)
