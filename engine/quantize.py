"""Quantize a checkpoint, so that it takes a fourth of its memory: see engine/worker/quantize.py, which needs torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.worker.libraries.installed import installed


def quantize(folder: Path, out: Path, bits: int, group: int, say: Callable[[str], None]) -> Any:
    """Quantize the checkpoint in a folder into a new one, and return how many layers that were, and its bytes before
    and after. ``say`` is called with what is being done. Raises ConfigError and WeightsError."""
    installed("parley quantize", "torch", "torch", "hf")
    return installed("parley quantize", "engine.worker.quantize", "safetensors", "hf").quantize(
        folder, out, bits, group, say
    )
