"""End-of-turn models that judge sound: Smart Turn, and other ONNX files of its signature."""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from app.realtime.input.log_mel import BANDS, HOP, log_mel
from engine import ConfigError
from engine.core import MIC_RATE_HZ, Pcm, Wave

WINDOW_S = 8
"""Seconds of sound that the network takes. Shorter turns get silence before them."""

_SAMPLES = WINDOW_S * MIC_RATE_HZ
_SHAPE = (BANDS, _SAMPLES // HOP)
_BUILT_IN = "smart-turn-v3.2-cpu.onnx"


class SmartTurn:
    """A network that tells from the last 8 s of a turn whether it is over.

    The default is Smart Turn v3.2 (NOTICE, section 4). The network loads at the first use (0.3 s). A judgement takes 60
    to 150 ms of one core. It may be called from any thread.

    Args:
        path: Another ONNX file: one float32 input [n, 80, 800] (``log_mel``), one float32 output [n, 1], the
            probability that the turn is over.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def probability(self, pcm: Pcm) -> float:
        """Return how likely a turn is over that ends with int16 [samples] ``pcm`` at MIC_RATE_HZ, 0 to 1."""
        wave: Wave = np.zeros(_SAMPLES, np.float32)
        tail = pcm[-_SAMPLES:]
        wave[_SAMPLES - len(tail) :] = np.divide(tail, 32768, dtype=np.float32)
        network, name = self._network
        outputs = network.run(None, {name: log_mel(wave)[None]})
        return float(np.clip(outputs[0].item(), 0.0, 1.0))

    def check(self) -> None:
        """Load the network. Raises ConfigError if the file is missing or of another signature."""
        _ = self._network

    @cached_property
    def _network(self) -> tuple[Any, str]:
        """The network, and the name of its input."""
        import onnxruntime  # heavy: only where sound is judged

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        where = self._path or _BUILT_IN
        try:
            weights = (self._path or files("app") / "weights" / _BUILT_IN).read_bytes()
        except OSError as error:
            raise ConfigError(f"The end-of-turn model {where} cannot be read: {error.strerror}.") from None
        try:
            network: Any = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  # the library has no common type for files that it cannot read
            reason = str(error).partition("\n")[0]
            raise ConfigError(f"The end-of-turn model {where} is no valid ONNX file: {reason}") from None
        _check_signature(network, where)
        return network, network.get_inputs()[0].name


def _check_signature(network: Any, where: Path | str) -> None:
    inputs = [(one.type, tuple(one.shape[1:])) for one in network.get_inputs()]
    outputs = [(one.type, tuple(one.shape[1:])) for one in network.get_outputs()]
    if inputs != [("tensor(float)", _SHAPE)] or outputs != [("tensor(float)", (1,))]:
        raise ConfigError(
            f"The end-of-turn model {where} has another signature: it must have one float32 input [n, {BANDS}, "
            f"{_SHAPE[1]}] and one float32 output [n, 1], as Smart Turn v3 has."
        )
