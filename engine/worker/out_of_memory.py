"""Recognise out-of-memory errors by their names and messages, without importing torch."""

from __future__ import annotations

from typing import Any

from engine.errors import OutOfMemory

ERRORS = frozenset({"OutOfMemoryError", "MemoryError"})
"""Names of the exceptions of torch and Python."""
WORDS = ("out of memory", "STATUS_ALLOC_FAILED", "not enough memory")
"""Parts of RuntimeError messages of CUDA, ROCm, Apple, cuBLAS and cuDNN, and of torch on a CPU."""


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether the error means that memory ran out."""
    in_words = isinstance(error, RuntimeError) and any(words in str(error) for words in WORDS)
    return in_words or type(error).__name__ in ERRORS


def begins_again(stage: Any) -> OutOfMemory:
    """Return the error of a request that is retried because other requests can free memory."""
    return OutOfMemory(f"The stage {stage.info.name} ran out of memory while it computed this answer.")
