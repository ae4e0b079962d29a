"""Voices of sherpa-onnx that have none of their own, and speak as recordings do: ZipVoice and Pocket, in a folder.

Knows no stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.core import Voice
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.tts.reference_voice import Clone
from engine.worker.tts.voices import named

STEPS = 4
"""Steps of ZipVoice's decoder for a sound: as its project recommends for the distilled one."""
_ZIPVOICE = {
    "encoder": "encoder*.onnx",
    "decoder": "decoder*.onnx",
    "vocoder": "vocos*.onnx",
    "tokens": "tokens.txt",
    "lexicon": "lexicon.txt",
}
_POCKET = {
    "lm_main": "lm_main*.onnx",
    "lm_flow": "lm_flow*.onnx",
    "encoder": "encoder*.onnx",
    "decoder": "decoder*.onnx",
    "text_conditioner": "text_conditioner*.onnx",
    "vocab_json": "vocab.json",
    "token_scores_json": "token_scores.json",
}


@dataclass(frozen=True, slots=True)
class Cloner:
    """``networks`` are its files, by their names in the library's configuration; the first language is the one that
    the published model speaks best."""

    family: str
    networks: Mapping[str, Path]
    rate_hz: int
    languages: tuple[str, ...]

    def voices(self, clones: Sequence[Clone], folder: Path) -> tuple[Voice, ...]:
        """Return the voices of recordings. Raises ConfigError where there is none, or one comes without its words."""
        if not clones:
            raise ConfigError(f"options.clones: the model in {folder} has no voice of its own; name a recording of one")
        for i, clone in enumerate(clones):
            if self.family == "zipvoice" and not clone.text.strip():
                raise ConfigError(f"options.clones[{i}].text: write down the words spoken in {clone.reference}")
        return tuple(named(clone.name) for clone in clones)


def cloner_in(folder: Path) -> Cloner | None:
    """Return the cloning voice in a folder, if it is one of these. Raises WeightsError where a part of it is
    missing."""
    if [*folder.glob("lm_main*.onnx")]:
        return Cloner("pocket", _found(folder, _POCKET), 24_000, ("en",))
    if [*folder.glob("encoder*.onnx")] and [*folder.glob("decoder*.onnx")]:
        networks = _found(folder, _ZIPVOICE)
        return Cloner("zipvoice", networks, _rate_hz(networks["decoder"]), ("zh", "en"))
    return None


def _found(folder: Path, patterns: Mapping[str, str]) -> dict[str, Path]:
    found = {name: sorted(folder.glob(pattern)) for name, pattern in patterns.items()}
    for name, pattern in patterns.items():
        if not found[name]:
            raise WeightsError(f"The voice folder {folder} has no {pattern}: put it beside the other files.")
    return {name: paths[0] for name, paths in found.items()}


def _rate_hz(decoder: Path) -> int:
    said = metadata_of(decoder).get("sample_rate", "24000")
    if not said.isdecimal() or not 4_000 <= int(said) <= 192_000:
        raise WeightsError(f"{decoder} has a sample_rate of {said!r:.40}, which is not a sample rate of speech.")
    return int(said)
