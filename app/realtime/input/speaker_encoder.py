"""The speaker embedding CAM++: a vector that tells voices apart."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from app.realtime.input.filter_bank import filter_bank
from app.realtime.ports import Embedding
from engine.core import MIC_RATE_HZ, Pcm
from engine.deployment.model_catalog import is_pulled, models_folder

MODEL = "campplus"
"""The catalogue's name of the weights."""

INSTALL = f"Run `parley pull {MODEL}` on the server and restart it."

WIDTH = 192
"""Values of an embedding."""

_GRAPH = "campplus.onnx"
_PIECE = 2 * MIC_RATE_HZ  # samples of sound that the network takes at once
_SHORTEST = MIC_RATE_HZ // 4  # samples of a remainder that is worth a run


class CampPlus:
    """The network of one server (NOTICE, section 6). ``folder`` contains its weights.

    It loads at the first use (0.2 s). It may be called from any thread.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def embed(self, pcm: Pcm) -> Embedding:
        """Return the embedding of the voice in int16 [samples] at MIC_RATE_HZ: a unit vector, float32 [WIDTH].

        Of more than 2 s it is the mean over pieces. ``pcm`` has at least 25 ms.
        """
        wave = np.divide(pcm, 32768, dtype=np.float32)
        pieces = [wave[at : at + _PIECE] for at in range(0, len(wave), _PIECE)]
        worthwhile = [piece for piece in pieces if len(piece) >= _SHORTEST] or pieces[:1]
        vectors = [unit(self._network.run(None, {"bands": filter_bank(piece)[None]})[0][0]) for piece in worthwhile]
        return unit(np.average(vectors, axis=0, weights=[len(piece) for piece in worthwhile]))

    @cached_property
    def _network(self) -> Any:
        import onnxruntime  # heavy: only where voices are told apart

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(self._folder))
        graph = (files("app") / "weights" / _GRAPH).read_bytes()
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def speaker_encoder() -> CampPlus | None:
    """Return the encoder of a server; None if its weights are not on this machine."""
    return CampPlus(models_folder() / MODEL) if is_pulled(MODEL) else None


def unit(vector: Any) -> Embedding:
    """Return a vector of length 1 and the same direction."""
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9), np.float32)
