"""`parley quantize CHECKPOINT FOLDER`: write a checkpoint that takes a quarter of the memory. Starts no engine."""

from __future__ import annotations

from pathlib import Path

from app.commands import terminal
from engine.quantize import quantize as quantized


def quantize(checkpoint: Path, out: Path, bits: int, group: int) -> None:
    """Write a quantized checkpoint. Raises ConfigError and WeightsError."""
    done = quantized(checkpoint, out, bits, group, terminal.whisper)
    if not done.layers:
        terminal.whisper(f"no layer's inputs are a multiple of the group size {group}: nothing was quantized")
    terminal.say(
        f"{out}: {done.layers} layers of {bits} bits, {done.before / 1e9:.2f} GB before, {done.after / 1e9:.2f} after"
    )
