"""Interface of the Triton kernels, and the check whether a device can run them. Imports Triton only when needed."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ConfigError
from engine.worker.nn.device import nvidia_capability
from engine.worker.nn.quantized import Weight
from engine.worker.stage import switched

log = logging.getLogger(__name__)

NO_COMPILER = "Triton needs gcc or clang to build its launcher, and neither is installed"
OLDEST = (8, 0)
"""Oldest compute capability for which the kernels are compiled (A100)."""


class Kernels(Protocol):
    """Operations that kernels provide to networks. None of them synchronizes, and all can be captured in a CUDA
    graph.
    """

    most_ids: int
    """Largest vocabulary that ``draw`` supports."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, begins: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        """Attend with one query per row to the row's own cache positions.

        Args:
            query: Queries [batch, heads, 1, dim].
            keys: Keys [key heads, positions, dim] of one layer's cache.
            values: Values, of the same shape.
            begins: First cache position of each row [batch].
            lengths: Number of positions that each row attends to [batch]. No other positions are read.
            longest: Upper bound of ``lengths``.

        Returns:
            Attention output [batch, heads, 1, dim] in the query's dtype.
        """
        ...

    def cut(self, begins: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
        """Return the blocks for ``varlen``.

        Piece i has ``counts[i]`` rows, after the first ``starts[i]`` of a slot that begins at cache position
        ``begins[i]``. Rows of a piece with a start of minus its length attend to nothing.
        """
        ...

    def varlen(self, query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor) -> Tensor:
        """Attend with the queries [1, heads, rows, dim] of all pieces to one layer's cache, in one launch.

        The pieces' own keys and values are already in the cache. Positions that no row may attend to are not read.
        """
        ...

    def takes(self, weight: Weight) -> bool:
        """Return whether ``experts`` supports a weight: 4- or 8-bit integers, or 16-bit floats on a GPU."""
        ...

    def experts(self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Weight, down: Weight) -> Tensor:
        """See ``moe.moe``. Weights are never dequantized in memory. Both must be quantized, or neither."""
        ...

    def add_norm(self, x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Return ``x + more`` [rows, width], and its root-mean-square norm scaled by ``weight`` [width]."""
        ...

    def place(
        self,
        heads: Tensor,
        norms: tuple[Tensor, Tensor] | None,
        eps: float,
        angles: tuple[Tensor, Tensor],
        at: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Tensor:
        """Normalize and rotate heads, and store keys and values in the cache.

        Args:
            heads: Heads [batch, rows, queries + keys + values, dim].
            norms: Norm weights [dim] of queries and keys, or None.
            eps: Epsilon of the norms.
            angles: Cosine and sine [batch or 1, 1, rows, dim] of a ``Rope``, with equal halves.
            at: Cache positions [batch, rows].
            keys: One layer's cache [key heads, positions, dim].
            values: The same for values.

        Returns:
            Queries [batch, heads, rows, dim].
        """
        ...

    def route(self, logits: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
        """See ``moe.route``; ``logits`` [rows, experts] are the router's output."""
        ...

    def swiglu(self, x: Tensor) -> Tensor:
        """See ``moe.swiglu``."""
        ...

    def draw(self, logits: Tensor, params: Any, stage: int, steps: Tensor, codebook: int) -> Tensor:
        """See ``sampler.draw``; ``params`` are BatchSamplingParams."""
        ...

    def snake(
        self, x: Tensor, alpha: Tensor, inverse: Tensor, past: Tensor | None, slots: Tensor, before: int
    ) -> Tensor:
        """Apply the snake activation (``codec.Snake``) to ``x`` and prepend past columns.

        Returns [batch, channels, before + columns]; the past columns are ``past`` [slots, channels, before] at
        ``slots`` [batch], or zeros if ``past`` is None.
        """
        ...


def chosen(wanted: Any, device: torch.device) -> Kernels | None:
    """Return the kernels for ``options.kernels``, or None. Raises ConfigError.

    ``auto`` uses kernels on supported NVIDIA GPUs, and logs a warning if only the compiler is missing.
    """
    there = find_spec("triton") is not None and nvidia_capability(device) >= OLDEST[0]
    if there and wanted == "auto" and not _has_compiler():
        log.warning("options.kernels: %s. This stage runs without kernels, which is slower.", NO_COMPILER)
        there = False
    return load(device) if switched("kernels", wanted, there) else None


def load(device: torch.device) -> Kernels:
    """Load the kernels for a device. Raises ConfigError if Triton is missing or does not support the device.

    A CPU supports them only if Triton interprets them (TRITON_INTERPRET=1, for tests). The device ``meta``, used for
    memory planning, is not checked.
    """
    if find_spec("triton") is None:
        raise ConfigError(
            "options.kernels: the package triton is not installed. torch's CUDA builds for Linux include it. "
            "Install it, or remove the option."
        )
    if (why := _refusal(device)) is not None:
        raise ConfigError(f"options.kernels: {why}. Remove the option; without kernels the stage is only slower.")
    return cast("Kernels", importlib.import_module("engine.worker.kernels.launched").Launched())


def _refusal(device: torch.device) -> str | None:
    if device.type == "cuda":
        found = torch.cuda.get_device_capability(device)
        if found < OLDEST:
            return f"the GPU has compute capability {found[0]}.{found[1]}, but the kernels need 8.0"
        return None if _has_compiler() else NO_COMPILER
    if device.type == "meta":
        return None
    interpreted = bool(importlib.import_module("triton").knobs.runtime.interpret)
    return (
        None
        if device.type == "cpu" and interpreted
        else f"the kernels need a CUDA device, but this stage runs on {device}"
    )


def _has_compiler() -> bool:
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))
