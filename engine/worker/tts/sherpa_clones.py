"""sherpa-onnx models without built-in speakers that clone a recording: ZipVoice and Pocket TTS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.core import Voice
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.onnx_metadata import metadata_of
from engine.worker.tts.reference_voice import Clone
from engine.worker.tts.voices import named

STEPS = 4
"""Decoder steps of ZipVoice, as its project recommends for the distilled model."""
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
    """A cloning model's files and languages."""

    family: str
    networks: Mapping[str, Path]
    """Network files, by their names in the library's configuration."""
    rate_hz: int
    languages: tuple[str, ...]
    """Languages of the published model, best first."""

    def voices(self, clones: Sequence[Clone], folder: Path) -> tuple[Voice, ...]:
        """Return one voice per recording. Raises ConfigError if there is none, or if a required transcript is
        missing.
        """
        if not clones:
            raise ConfigError(f"options.clones: the model in {folder} has no built-in voice; add a recording")
        for i, clone in enumerate(clones):
            if self.family == "zipvoice" and not clone.text.strip():
                raise ConfigError(f"options.clones[{i}].text: add the transcript of {clone.reference}")
        return tuple(named(clone.name) for clone in clones)


def cloner_in(folder: Path) -> Cloner | None:
    """Return the cloning model in a folder, or None. Raises WeightsError if files are missing."""
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
            raise WeightsError(f"The voice folder {folder} has no {pattern}. Copy it next to the other files.")
    return {name: paths[0] for name, paths in found.items()}


def _rate_hz(decoder: Path) -> int:
    said = metadata_of(decoder).get("sample_rate", "24000")
    if not re.fullmatch("[0-9]{1,6}", said) or not 4_000 <= int(said) <= 192_000:
        raise WeightsError(f"{decoder} has a sample_rate of {said!r:.40}; it must be from 4000 to 192000.")
    return int(said)
