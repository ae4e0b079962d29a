"""ONNX Runtime on the CPU: how the networks of nano are loaded and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import onnxruntime as ort
from numpy.typing import NDArray

from engine.errors import WeightsError


def load(path: Path, threads: int = 1, same_shapes: bool = True) -> ort.InferenceSession:
    """Load a network. ``same_shapes`` says whether most of its steps have inputs of the same shape.

    Raises WeightsError for a file that is missing or damaged.
    """
    if not path.is_file():
        raise WeightsError(f"{path} is missing: point `weights` to a folder with nano's ONNX files")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = same_shapes
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common base
        raise WeightsError(f"{path} cannot be loaded ({error}): fetch the file again") from error


def run(
    net: ort.InferenceSession, outputs: Sequence[str] | None, inputs: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]]:
    """Return the named outputs, or all, as arrays: `InferenceSession.run` with the type of its result."""
    return cast("list[NDArray[Any]]", net.run(outputs, dict(inputs)))
