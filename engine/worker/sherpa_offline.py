"""Ears of sherpa-onnx that hear whole clips, as they lie in a folder: NeMo's transducers (Parakeet) and CTC.

The library ends the process where the metadata of a network is not what it needs, so that is looked up here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import WeightsError
from engine.worker.onnx_metadata import metadata_of
from engine.worker.sherpa_ears import WHOLE_CLIPS, folder_of, networks_of, written_in


@dataclass(frozen=True, slots=True)
class OfflineEars:
    """``networks`` are a transducer's encoder, decoder and joiner, or one that tells tokens by itself (CTC)."""

    folder: Path
    networks: Mapping[str, Path]
    languages: tuple[str, ...]
    capitals: bool
    """Whether it writes nothing but capital letters: its text is made lowercase."""

    def recognizer(self, library: Any, threads: int) -> Any:
        """The library's recognizer of it, which decodes many clips at once."""
        files = {name: str(path) for name, path in self.networks.items()}
        files["tokens"] = str(self.folder / "tokens.txt")
        if "joiner" in self.networks:
            return library.OfflineRecognizer.from_transducer(num_threads=threads, model_type="nemo_transducer", **files)
        return library.OfflineRecognizer.from_nemo_ctc(num_threads=threads, **files)


def offline_ears(folder: Path | None, languages: Sequence[str] = ()) -> OfflineEars:
    """The ears in a folder. Raises WeightsError where something is missing."""
    folder = folder_of(folder, "asr.sherpa_offline")
    networks = networks_of(folder)
    hears = networks.get("encoder") or networks["model"]
    metadata = metadata_of(hears)
    kind = metadata.get("model_type", "")
    if not kind.startswith(WHOLE_CLIPS):
        hint = "; use: asr.sherpa is for it" if kind.startswith("zipformer2") and metadata.get("T") else ""
        raise WeightsError(f"{hears} is of the kind {kind!r:.40}; asr.sherpa_offline knows those of NeMo{hint}.")
    needed = ["vocab_size", "subsampling_factor"] + ["pred_rnn_layers", "pred_hidden"] * ("joiner" in networks)
    if missing := [key for key in needed if not metadata.get(key, "").isdigit()]:
        raise WeightsError(f"{hears} says nothing of its {', '.join(missing)}: these are no ears of sherpa-onnx.")
    known, capitals = written_in(folder, languages)
    return OfflineEars(folder, networks, known, capitals)
