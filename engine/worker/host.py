"""Build a worker from its spec: load the family, make and warm its stages. Knows nothing of where the worker runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from engine import wire
from engine.chunk import OUTPUTS
from engine.errors import ConfigError
from engine.registry import load
from engine.worker.process import Worker
from engine.worker.run import Send
from engine.worker.stage import Family, Place


def build(task: wire.Task, send: Send) -> tuple[Worker, wire.Hello]:
    """Load what the task asks for. Raises ConfigError or WeightsError; may take as long as loading takes."""
    family: Family = load("engine.worker.models", task.model, "FAMILY")
    for name in task.worker.stages:
        if name not in family.stages:
            raise ConfigError(f"{task.model} has no stage {name!r}; it has {', '.join(family.stages)}")
    place = Place(
        weights=Path(task.weights) if task.weights else None,
        device=task.device,
        dtype=task.worker.dtype,
        threads=task.worker.threads,
        slots=task.worker.max_batch,
        options=task.options,
    )
    model = family.info(place)
    stages = {name: make(place) for name, make in family.stages.items() if name in task.worker.stages}
    worker = Worker(
        stages, model, task.chunks, family.rows_ahead, task.worker.max_batch, send, schedule=task.worker.schedule
    )
    infos = tuple(stage.info for stage in stages.values())
    for info in infos:
        if strange := info.emits - OUTPUTS:
            raise ConfigError(f"the stage {info.name} emits {', '.join(sorted(strange))}, which no client can take")
    return worker, wire.Hello(task.id, os.getpid(), model, infos, tuple(family.stages))


def set_visible_device(task: wire.Task) -> wire.Task:
    """See no device but the task's own, so that two workers never land on the same one. Raises ConfigError.

    Once, and before anything has touched a device: afterwards it is too late.
    """
    number = task.device.removeprefix("cuda:")
    if not number.isdigit():
        return task
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if visible and int(number) >= len(visible):
        raise ConfigError(f"the device {task.device} is not there: only {len(visible)} may be seen")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if visible else number
    if not _devices():
        raise ConfigError(f"the device {task.device} is not there: look with nvidia-smi, or say cpu")
    return msgspec.structs.replace(task, device="cuda:0")


def _devices() -> int:
    """How many CUDA devices this process sees; none without torch."""
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count()


def set_niceness() -> None:
    """Yield to the server's process, which has packets to send, where the two compete for a core."""
    with contextlib.suppress(OSError):
        os.nice(1)
