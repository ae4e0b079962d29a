"""What kernels offer to networks, and whether a device can have them. Imports no Triton: that is there on some machines
only."""

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

NO_COMPILER = "neither gcc nor clang is here, with which Triton builds what launches a kernel"
OLDEST = (8, 0)
"""The oldest compute capability for which the kernels are compiled ahead, that of an A100."""


class Kernels(Protocol):
    """What networks may have computed by kernels. Nothing waits for the device, and a graph may capture all of it."""

    most_ids: int
    """Ids of a row from which ``draw`` can draw."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, begins: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        """What one query a row [batch, heads, 1, dim] makes of the positions that its row may see, in its own dtype.

        ``keys`` and ``values`` [key heads, positions, dim] are one layer's cache. A row sees ``lengths`` positions
        [batch], from ``begins`` [batch] on; none is longer than ``longest``. Of others nothing is read.
        """
        ...

    def cut(self, begins: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
        """The blocks for ``varlen``, of pieces that lie one behind another: each has so many rows, behind the first
        ``start`` of a slot that begins at ``begin`` of the cache. Rows that start as many before it see nothing."""
        ...

    def varlen(self, query: Tensor, keys: Tensor, values: Tensor, blocks: Tensor) -> Tensor:
        """What queries [1, heads, rows, dim] of all pieces make of what they may see of one layer's cache, to which
        their own keys and values have gone; in one launch. Of other positions nothing is read."""
        ...

    def takes(self, weight: Weight) -> bool:
        """Whether ``experts`` can read such weights: whole numbers of 4 or 8 bits; and on a GPU floats of 16."""
        ...

    def experts(self, x: Tensor, experts: Tensor, shares: Tensor, gate_up: Weight, down: Weight) -> Tensor:
        """See moe.moe; no weight is written out. Both weights are quantized, or neither."""
        ...

    def add_norm(self, x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """Rows [rows, width] ``x + more``, and their root-mean-square norm, times ``weight`` [width]."""
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
        """Queries [batch, heads, rows, dim] of heads [batch, rows, queries + keys + values, dim]; their keys and values
        go to positions ``at`` [batch, rows] of one layer's cache [key heads, positions, dim].

        ``norms`` [dim] are those of queries and keys. ``angles`` are cosine and sine [batch or 1, 1, rows, dim] of a
        ``Rope``, whose halves are alike.
        """
        ...

    def route(self, logits: Tensor, top_k: int, normalise: bool) -> tuple[Tensor, Tensor]:
        """See moe.route; ``logits`` [rows, experts] are those of its router."""
        ...

    def swiglu(self, x: Tensor) -> Tensor:
        """See moe.swiglu."""
        ...

    def draw(self, logits: Tensor, params: Any, stage: int, steps: Tensor, codebook: int) -> Tensor:
        """See sampler.draw; ``params`` are its BatchSamplingParams."""
        ...

    def snake(
        self, x: Tensor, alpha: Tensor, inverse: Tensor, past: Tensor | None, slots: Tensor, before: int
    ) -> Tensor:
        """Signals [batch, channels, before + columns]: in front what ``past`` [slots, channels, before] holds of those
        of ``slots`` [batch], or zeros where there is none; behind it the snake (codec.Snake) of ``x``."""
        ...


def chosen(wanted: Any, device: torch.device) -> Kernels | None:
    """The kernels of ``options.kernels``: ``auto`` (on NVIDIA's GPUs that can have them, and log what is missing else),
    ``on`` or ``off``. Raises ConfigError."""
    there = find_spec("triton") is not None and nvidia_capability(device) >= OLDEST[0]
    if there and wanted == "auto" and not _has_compiler():
        log.warning("options.kernels: %s; this stage goes on without kernels, slower", NO_COMPILER)
        there = False
    return load(device) if switched("kernels", wanted, there) else None


def load(device: torch.device) -> Kernels:
    """The kernels for a device. Raises ConfigError where Triton is missing, or where the device can't run them.

    On a CPU there are none, unless Triton interprets them (TRITON_INTERPRET=1, for tests). For the device ``meta``,
    on which memory is planned, nobody asks what it can do.
    """
    if find_spec("triton") is None:
        raise ConfigError(
            "options.kernels: the package triton is not installed; torch's builds for CUDA bring it on Linux. "
            "Install it, or leave the option out."
        )
    if (why := _refusal(device)) is not None:
        raise ConfigError(f"options.kernels: {why}. Leave the option out; everything works without it.")
    return cast("Kernels", importlib.import_module("engine.worker.kernels.launched").Launched())


def _refusal(device: torch.device) -> str | None:
    if device.type == "cuda":
        found = torch.cuda.get_device_capability(device)
        if found < OLDEST:
            return f"the GPU has compute capability {found[0]}.{found[1]}, and they need 8.0"
        return None if _has_compiler() else NO_COMPILER
    if device.type == "meta":
        return None
    interpreted = bool(importlib.import_module("triton").knobs.runtime.interpret)
    return None if device.type == "cpu" and interpreted else f"they run on CUDA devices, and this stage on {device}"


def _has_compiler() -> bool:
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))
