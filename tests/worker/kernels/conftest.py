"""Kernels on a machine without a GPU: Triton interprets them, one operation of numpy after another.

tests/conftest.py says so, before anybody imports Triton.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module

import pytest

from engine.worker.kernels.loading import Kernels
from tests.worker.kernels.figures import LARGEST
from tests.worker.models.conftest import checkpoint

__all__ = ["checkpoint", "kernels"]


@pytest.fixture(scope="session", autouse=True)
def figures() -> Generator[None]:
    """Print, at the end of all, how far kernels were from torch."""
    yield
    for (name, dtype), difference in sorted(LARGEST.items(), key=str):
        print(f"largest difference from torch: {name}, {dtype}: {difference:.1e}")


@pytest.fixture
def kernels() -> Kernels:
    """As a stage gets them."""
    launched: Kernels = import_module("engine.worker.kernels.launched").Launched()
    return launched
