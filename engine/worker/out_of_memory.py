"""Recognize a device that ran out of memory, by the names of errors: this needs no torch."""

from __future__ import annotations

from typing import Any

from engine.errors import OutOfMemory

ERRORS = frozenset({"OutOfMemoryError", "MemoryError"})
"""Names of the errors of torch and of Python."""
WORDS = ("out of memory", "STATUS_ALLOC_FAILED", "not enough memory")
"""Words in a RuntimeError of CUDA, ROCm or Apple, of cuBLAS or cuDNN, and of torch on a CPU."""


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether the error says that memory ran out."""
    in_words = isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)
    return in_words or type(error).__name__ in ERRORS


def begins_again(stage: Any) -> OutOfMemory:
    """Return the error of a request that starts again, because other requests can give memory up."""
    return OutOfMemory(f"The stage {stage.info.name} ran out of memory while it computed this answer.")
