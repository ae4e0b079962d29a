"""Checkpoints for the tests that need a CUDA device."""

from __future__ import annotations

from tests.engine.worker.models.conftest import checkpoint

__all__ = ["checkpoint"]
