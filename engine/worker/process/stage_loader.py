"""Build a worker with warm stages from its task, and run it, wherever it runs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from engine.chunk import OUTPUTS
from engine.deployment.config import StageSpec, file_of
from engine.errors import ConfigError, EngineError, StageFailed, WeightsError
from engine.ipc import messages
from engine.worker.loop.run import Send
from engine.worker.loop.worker import Worker
from engine.worker.out_of_memory import out_of_memory
from engine.worker.process.duplex_capacity import sessions_held
from engine.worker.process.heartbeat import beats
from engine.worker.stage import Stage, StageConfig, config_of
from engine.worker.uses import fault_in, stage_type


def build(task: messages.Task, send: Send) -> tuple[Worker, messages.Hello]:
    """Load the stages of a task, and return when they are warm. Raises ConfigError or WeightsError."""
    own = {spec.name: (spec, order) for order, spec in enumerate(task.stages) if spec.name in task.worker.stages}
    answers = device_checked([(spec, order) for spec, order in own.values()], task)
    stages = {name: make(spec.use, name, order, _config(spec, task)) for name, (spec, order) in own.items()}
    max_batch = {spec.name: _max_batch(spec, task) for spec in task.stages}
    worker = Worker(stages, task.chunks, max_batch, send, schedule=task.worker.schedule, device_answers=answers)
    return worker, messages.Hello(task.id, os.getpid(), tuple(stage.info for stage in stages.values()))


async def serve(worker: Worker, hello: messages.Hello, task: messages.Task, send: Send, over: asyncio.Event) -> None:
    """Send Hello, then run the worker's step loop and send heartbeats until ``over`` is set.

    A failed step loop raises an ExceptionGroup.
    """
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(worker.serve(), name="serve")
        await asyncio.sleep(0)
        send(hello)
        beating = tasks.create_task(beats(worker, task, send), name="beats")
        await over.wait()
        serving.cancel()
        beating.cancel()


def device_checked(specs: Sequence[tuple[StageSpec, int]], task: messages.Task) -> Callable[[], bool]:
    """Return a function that checks whether the device still works. Without torch stages it always returns True.

    Raises:
        ConfigError: The device does not work now.
        WeightsError: The device has too little memory for the stages whose needs are known in advance.
    """
    kinds = {name: found for spec, order in specs for name, found in _kinds(spec, order, _config(spec, task))}
    plannable = {name: found for name, found in kinds.items() if getattr(found[0], "plannable", False)}
    if task.device == "cpu" or not plannable:
        return lambda: True
    from engine.worker.nn.device import answers, check  # these stages use torch
    from engine.worker.nn.memory import check_room

    device = f"cuda:{task.device}" if task.device.isdigit() else task.device
    check(device)
    check_room(plannable, device)
    return functools.partial(answers, device)


def _kinds(spec: StageSpec, order: int, config: StageConfig) -> Iterator[tuple[str, tuple[Any, StageConfig]]]:
    """Yield the types and configurations of a stage and of its models, by name."""
    yield spec.name, (_kind(spec.use, order), config)
    for i, (use, model) in enumerate(config.models):
        yield f"{spec.name}.models[{i}]", (_kind(use, order), model)


def _config(spec: StageSpec, task: messages.Task) -> StageConfig:
    worker = StageConfig(
        device=task.device,
        dtype=task.worker.dtype,
        threads=task.worker.threads,
        slots=_max_batch(spec, task),
        slots_fixed=spec.max_batch is not None,
    )
    return config_of(spec, worker)


def _max_batch(spec: StageSpec, task: messages.Task) -> int:
    return spec.max_batch or task.worker.max_batch


def make(use: str, name: str, order: int, config: StageConfig) -> Stage:
    """Create the stage that ``use`` names, with its name and its index in the pipeline, and warm it up.

    Raises ConfigError or WeightsError.
    """
    kind = _kind(use, order)
    try:
        stage = kind(config)
        stage.info = msgspec.structs.replace(stage.info, name=name, order=order)
        if warm_up := getattr(stage, "warm_up", None):
            warm_up()
        if stage.info.facets.duplex is not None:
            stage.info = msgspec.structs.replace(stage.info, slots=sessions_held(stage))
    except StageFailed as error:
        raise ConfigError(f"stages[{order}]: {use} failed while it warmed up: {error}") from error
    except ImportError as error:
        raise ConfigError(f"stages[{order}]: {use} cannot be created with {sys.executable}: {error}") from error
    except Exception as error:
        if out_of_memory(error):
            raise WeightsError(
                f"The device {config.device} ran out of memory while {name} was loaded. Another process may be using "
                "it. End that process, lower max_batch or options.context, or give the stage another device."
            ) from error
        own = file_of(use)
        if own is None or isinstance(error, EngineError):
            raise
        raise ConfigError(f"stages[{order}]: {use} cannot be created: {fault_in(own[0], error)}") from error
    if strange := stage.info.emits - OUTPUTS:
        raise ConfigError(f"the stage {name} emits {', '.join(sorted(strange))}, which cannot be sent to clients")
    return stage


def _kind(use: str, order: int) -> Any:
    return stage_type(use, f"stages[{order}].use")


def set_visible_device(task: messages.Task) -> messages.Task:
    """Hide all devices except the task's, so that two workers never share one by mistake. Raises ConfigError.

    Call it once, before anything uses a device.
    """
    number = task.device.removeprefix("cuda:")
    if not number.isdigit():
        return task
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if visible and int(number) >= len(visible):
        raise ConfigError(f"the device {task.device} does not exist: CUDA_VISIBLE_DEVICES lists only {len(visible)}")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[int(number)] if visible else number
    if not _devices():
        raise ConfigError(f"the device {task.device} does not exist. List the devices with nvidia-smi, or use cpu")
    return msgspec.structs.replace(task, device="cuda:0")


def _devices() -> int:
    """Count the CUDA devices that this process sees; without torch, the devices of NVIDIA's driver."""
    try:
        import torch
    except ImportError:
        return sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))
    return torch.cuda.device_count()


def set_niceness() -> None:
    """Lower this process's priority slightly: the server's process has to send audio in time."""
    with contextlib.suppress(OSError):
        os.nice(1)
