"""Kernels on a machine without a GPU: Triton interprets them, one operation of numpy after another.

tests/conftest.py says so, before anybody imports Triton.
"""

from __future__ import annotations

from importlib import import_module

import pytest

from engine.worker.kernels.loading import Kernels
from tests.worker.models.conftest import checkpoint

__all__ = ["checkpoint", "kernels"]


@pytest.fixture
def kernels() -> Kernels:
    """As a stage gets them."""
    launched: Kernels = import_module("engine.worker.kernels.launched").Launched()
    return launched
