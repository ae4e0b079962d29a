"""Loads and runs nano's networks with ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import onnxruntime as ort
from numpy.typing import NDArray

from engine.errors import WeightsError


def load(path: Path, threads: int = 1, same_shapes: bool = True) -> ort.InferenceSession:
    """Load a network. Set ``same_shapes`` if the input shapes rarely change between steps.

    Raises WeightsError if the file is missing or damaged.
    """
    if not path.is_file():
        raise WeightsError(f"{path} is missing. Set `weights` to a folder with nano's ONNX files.")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = same_shapes
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise WeightsError(f"{path} cannot be loaded ({error}). Download the file again.") from error


def run(
    net: ort.InferenceSession, outputs: Sequence[str] | None, inputs: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]]:
    """Return the named outputs (None: all) as arrays; a typed `InferenceSession.run`."""
    return cast("list[NDArray[Any]]", net.run(outputs, dict(inputs)))
