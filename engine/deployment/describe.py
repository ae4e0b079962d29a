"""The description of a deployment's stages and pipeline before anything is loaded.

A stage reads at most its checkpoint's configuration for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine.core import ModelInfo, StageInfo
from engine.deployment.config import ChunkSpec, EngineSpec, StageSpec, WorkerSpec
from engine.deployment.model_catalog import check_here
from engine.deployment.registry import load, names
from engine.errors import ConfigError, WeightsError
from engine.pipeline import Pipeline


def describe(spec: EngineSpec) -> ModelInfo:
    """Return the description of the model that a deployment would serve, without using a device.

    Args:
        spec: The deployment.

    Returns:
        The same as ``Engine.model`` after a start.

    Raises:
        ConfigError: The deployment is invalid.
        WeightsError: Weights are missing or do not fit their stage.
    """
    check_here(name for stage in spec.stages for name in stage.all_weights)
    whole = written_out(spec)
    infos = [_described(stage, place, whole.workers) for place, stage in enumerate(whole.stages)]
    return pipeline(infos, whole).model


def pipeline(infos: Sequence[StageInfo], spec: EngineSpec) -> Pipeline:
    """Return the pipeline of a deployment's stages. Raises ConfigError if they do not fit each other."""
    sources = {stage.name: stage.from_ for stage in spec.stages if stage.from_}
    return Pipeline(infos, spec.name or "", sources, sets_chunks=spec.chunks != ChunkSpec())


def written_out(spec: EngineSpec) -> EngineSpec:
    """Return the deployment with all stages and workers that the configuration leaves to their defaults.

    Raises:
        ConfigError: The family is unknown, a stage has no worker, or a worker names an unknown stage.
    """
    if not spec.stages:
        spec = replace(spec, stages=stages_of(spec.model or "", spec.weights, spec.options))
    if not spec.workers:
        spec = replace(spec, workers=_workers(spec))
    _check_hosts(spec)
    return spec


def stages_of(family: str, weights: str | None, options: Mapping[str, Any]) -> tuple[StageSpec, ...]:
    """Return all stages of a family. Raises ConfigError for an unknown family."""
    line: tuple[str, ...] = load("engine.worker", "uses", "line_of")(family)
    return tuple(StageSpec(use=f"{family}.{name}", name=name, weights=weights, options=options) for name in line)


def hears_for(stages: Sequence[StageSpec]) -> str:
    """Return the name of the only model whose requests a speech recogniser understands; empty if it is not limited."""
    return next((info.facets.hears_for for info in _describable(stages) if info.facets.hears_for), "")


def speakers_of(stages: Sequence[StageSpec]) -> tuple[str, ...]:
    """Return the ids of the voices that these stages offer; none if the stages cannot be described."""
    return tuple(voice.id for info in _describable(stages) for voice in info.facets.voices)


def _describable(stages: Sequence[StageSpec]) -> list[StageInfo]:
    """Return the stages' descriptions; none if one of them fails, which the deployment's start reports."""
    try:
        return [_described(stage, place, ()) for place, stage in enumerate(stages)]
    except (ConfigError, WeightsError):
        return []


def use_of(kind: str, weights: Path) -> str:
    """Return the stage that loads the weights at a path.

    Args:
        kind: ``asr`` or ``tts``.
        weights: The path.

    Raises:
        WeightsError: No stage of this kind loads them.
        ConfigError: Several stages do.
    """
    uses = [f"{kind}.{name}" for name in names(f"engine.worker.stages.{kind}")]
    fitting = [use for use in uses if _loads(StageSpec(use=use, name=use, weights=str(weights)))]
    if len(fitting) > 1:
        raise ConfigError(f"{' and '.join(fitting)} can all load {weights}; name one, like {fitting[0]}:{weights}")
    if not fitting:
        raise WeightsError(
            f"no stage can load {weights} (tried {', '.join(uses)}). "
            f"To see why, name the stage: for example {uses[-1]}:{weights}"
        )
    return fitting[0]


def _loads(stage: StageSpec) -> bool:
    try:
        _described(stage, 0, ())
    except (ConfigError, WeightsError):
        return False
    return True


def _workers(spec: EngineSpec) -> tuple[WorkerSpec, ...]:
    """Return the default workers: one for each speech recogniser and blocking stage, one for all other stages.

    A speech recogniser in another stage's worker would delay that stage's audio.
    """
    infos = [_described(stage, place, ()) for place, stage in enumerate(spec.stages)]
    alone = [info.name for info in infos if info.hears_only or info.blocking]
    together = [info.name for info in infos if info.name not in alone]
    return tuple(WorkerSpec(stages=tuple(names)) for names in (*([name] for name in alone), together) if names)


def _described(stage: StageSpec, order: int, workers: tuple[WorkerSpec, ...]) -> StageInfo:
    kind: Any = load("engine.worker", "uses", "stage_type")(stage.use, f"stages[{order}].use")
    if stage.models and not getattr(kind, "composes", False):
        raise ConfigError(f"stages[{order}].models: {stage.use} takes no models; use llm.chain or tts.by_language")
    config: Any = load("engine.worker", "stage", "StageConfig")
    config_of: Any = load("engine.worker", "stage", "config_of")
    dtype = next((worker.dtype for worker in workers if stage.name in worker.stages), "float32")
    info: StageInfo = kind.describe(config_of(stage, config(dtype=dtype)))
    return msgspec.structs.replace(info, name=stage.name, order=order)


def _check_hosts(spec: EngineSpec) -> None:
    names = [stage.name for stage in spec.stages]
    of_workers = [name for worker in spec.workers for name in worker.stages]
    for i, worker in enumerate(spec.workers):
        for name in worker.stages:
            if name not in names:
                raise ConfigError(
                    f"workers[{i}].stages: there is no stage {name!r}; {spec.title} has {', '.join(names)}"
                )
    if missing := [name for name in names if name not in of_workers]:
        raise ConfigError(
            f'workers: no worker hosts "{missing[0]}", which {spec.title} needs. Add it to a worker\'s `stages`.'
        )
