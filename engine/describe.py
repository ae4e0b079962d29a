"""What a deployment's model says of itself, before any of it is loaded: its voices, its languages, what it can do.

A family reads no more for that than its checkpoint's configuration. Knows no worker that runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.config import EngineSpec
from engine.core import ModelInfo
from engine.registry import load


def describe(spec: EngineSpec) -> ModelInfo:
    """The model as `Engine.model` will tell it. Touches no device. Raises ConfigError or WeightsError."""
    family: Any = load("engine.worker.models", spec.model, "FAMILY")
    place: Any = load("engine.worker", "stage", "Place")
    weights = Path(spec.weights) if spec.weights else None
    return family.info(place(weights=weights, dtype=spec.workers[0].dtype, options=spec.options))
