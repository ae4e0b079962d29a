"""Kernels on a machine without a GPU: Triton interprets them, one operation of numpy after another.

tests/conftest.py says so, before anybody imports Triton.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from importlib.metadata import version

import pytest

from engine.worker.nn.kernel_loading import Kernels
from tests.engine.worker.kernels.figures import LARGEST
from tests.engine.worker.models.conftest import checkpoint

__all__ = ["checkpoint", "kernels"]

OLDEST = (3, 7)
"""The first Triton whose interpreter takes a loop as long as a tensor says, beside numpy 2.4; torch 2.13 brings it. To
be compiled for a GPU, 3.6 will do, which is torch 2.11's."""


@pytest.fixture(scope="session", autouse=True)
def figures() -> Generator[None]:
    """Print, at the end of all, how far kernels were from torch."""
    yield
    for (name, dtype), difference in sorted(LARGEST.items(), key=str):
        print(f"largest difference from torch: {name}, {dtype}: {difference:.1e}")


@pytest.fixture
def kernels() -> Kernels:
    """As a stage gets them."""
    if tuple(map(int, (found := version("triton")).split(".")[:2])) < OLDEST:
        pytest.skip(f"triton {found} is too old to be interpreted beside numpy 2.4: `make kernels` wants 3.7")
    launched: Kernels = import_module("engine.worker.kernels.launched").Launched()
    return launched
