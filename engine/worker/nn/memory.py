"""Estimates the device memory of stages before loading them, by building each on torch's ``meta`` device.

Tensors on ``meta`` have a shape but no data, so even a 70 GB stage is built in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.errors import EngineError, WeightsError
from engine.worker.nn.quantized import QuantizedWeight
from engine.worker.nn.slots import KvSlots
from engine.worker.stage import StageConfig

log = logging.getLogger(__name__)

META = "meta"
WORK = 700_000_000
"""Bytes that CUDA itself uses per process."""
BUSY = 0.1  # share of a device's memory; CUDA and a desktop use less


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Estimated bytes of a stage."""

    weights: int
    """Weights and other tables."""
    caches: int
    """Keys and values."""
    remembered: int
    """Cached prefixes of sessions."""
    work: int = 0
    """Working memory, including graphs and the largest dequantized weight."""

    @property
    def total(self) -> int:
        return self.weights + self.caches + self.remembered + self.work

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "caches": self.caches,
            "remembered prompts": self.remembered,
            "work space": self.work,
        }
        return ", ".join(f"{size / 1e9:.1f} of {name}" for name, size in parts.items() if size)


def plan(kind: Callable[[StageConfig], Any], config: StageConfig) -> MemoryPlan:
    """Build a stage on ``meta`` and sum up its memory. Raises any error of the construction."""
    stage = kind(replace(config, device=META))
    things = list(_things(stage, False, set()))
    found = [(one.nbytes, cached) for one, cached in things if isinstance(one, Tensor) and one.device.type == META]
    written = max((one.written_bytes for one, _ in things if isinstance(one, QuantizedWeight)), default=0)
    caches = sum(size for size, cached in found if cached)
    weights = sum(size for size, cached in found if not cached)
    prefixes = getattr(stage, "prefixes", None)
    remembered = prefixes.budget if prefixes is not None else 0
    return MemoryPlan(weights, caches, remembered, getattr(stage, "work_bytes", 0) + written)


def memory_of(device: str) -> tuple[int, int] | None:
    """Return the free and total bytes of a device, or None if unknown (as on a CPU)."""
    if device.startswith("cuda"):
        free, whole = torch.cuda.mem_get_info(device)
        return int(free), int(whole)
    if device.startswith("mps"):
        whole = int(torch.mps.recommended_max_memory())
        return whole - int(torch.mps.driver_allocated_memory()), whole
    return None


def check_room(
    stages: Mapping[str, tuple[Callable[[StageConfig], Any], StageConfig]],
    device: str,
) -> None:
    """Raise WeightsError if the stages (by name) do not fit on a device together."""
    if (known := memory_of(device)) is None:
        return
    there, whole = known
    plans = {name: found for name, (kind, config) in stages.items() if (found := _planned(name, kind, config))}
    needed = sum(one.total for one in plans.values()) + WORK
    if needed > there:
        parts = "; ".join(f"{name}: {one}" for name, one in plans.items())
        busy = f" of {whole / 1e9:.1f} because other processes use the rest" if whole - there > BUSY * whole else ""
        raise WeightsError(
            f"The device {device} has {there / 1e9:.1f} GB free{busy}, but {', '.join(plans)} need {needed / 1e9:.1f} "
            f"({parts}; {WORK / 1e9:.1f} for CUDA itself). Use a quantized checkpoint (`parley quantize`), "
            "lower max_batch, options.cache_tokens, options.context or options.remember_mb, or move a stage to "
            "another device."
        )


def _planned(name: str, kind: Callable[[StageConfig], Any], config: StageConfig) -> MemoryPlan | None:
    try:
        return plan(kind, config)
    except EngineError:
        raise
    except Exception as error:  # noqa: BLE001 - e.g. a stage that computes something during construction
        log.warning("cannot estimate the device memory of %s before loading it: %r", name, error)
        return None


def _things(thing: Any, cached: bool, seen: set[int]) -> Iterator[tuple[Tensor | QuantizedWeight, bool]]:
    """Yield all tensors that an object reaches, and whether each belongs to a KV cache.

    Quantized weights are yielded in addition to their parts.
    """
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing, cached
        return
    if isinstance(thing, QuantizedWeight):
        yield thing, cached
    cached = cached or isinstance(thing, KvSlots)
    for part in _parts(thing):
        yield from _things(part, cached, seen)


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    else:
        yield from getattr(thing, "__dict__", {}).values()
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        yield from (getattr(thing, name) for name in names if hasattr(thing, name))
