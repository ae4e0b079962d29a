"""Quantize a checkpoint to about a quarter of its size. The work is done by engine/worker/quantize.py, which needs
torch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.worker.libraries.installed import installed


def quantize(folder: Path, out: Path, bits: int, group: int, say: Callable[[str], None]) -> Any:
    """Quantize a checkpoint.

    Args:
        folder: The checkpoint's folder.
        out: The new checkpoint's folder.
        bits: Bits per weight.
        group: Weights per quantization group.
        say: Called with a description of the current step.

    Returns:
        The number of quantized layers, and the sizes in bytes before and after.

    Raises:
        ConfigError: The options are invalid, or a package is not installed.
        WeightsError: The checkpoint cannot be quantized.
    """
    installed("parley quantize", "torch", "torch", "hf")
    return installed("parley quantize", "engine.worker.quantize", "safetensors", "hf").quantize(
        folder, out, bits, group, say
    )
