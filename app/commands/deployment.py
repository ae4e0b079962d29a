"""Which configuration a command means: a path, the name of one that comes with Parley, or the built-in model's.

Knows no engine that runs; raises ConfigError with the nearest known name.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Iterable
from pathlib import Path

from engine import ConfigError, EngineSpec, load_config

DEFAULT = "nano"
FOLDERS = (Path(__file__).parents[2] / "configs", Path(sys.prefix) / "share" / "parley" / "configs")
"""Where configurations lie: in the repository, and beside an installed package."""

DEVICES = Path("/dev")


def deployment(config: str | None = None, model: str | None = None, weights: str | None = None) -> EngineSpec:
    """The spec of a configuration, by path or by name; ``model`` and ``weights`` override what it says.

    A model brings a configuration of its own along, since its stages are not another's.
    """
    spec = load_config(path_of(config or _own(model) or DEFAULT))
    changes = {"model": model, "weights": weights}
    return dataclasses.replace(spec, **{name: value for name, value in changes.items() if value is not None})


def _own(model: str | None) -> str | None:
    """The configuration of a model's own name, else the first one of that model whose devices are here."""
    known = configurations()
    if model is None or model in known:
        return model
    here, specs = gpus(), ((name, load_config(path)) for name, path in known.items())
    return next((name for name, spec in specs if spec.model == model and _devices(spec) <= here), None)


def _devices(spec: EngineSpec) -> int:
    """How many GPUs of this machine a deployment names."""
    named = {str(device) for worker in spec.workers if not worker.resources for device in worker.devices}
    return len(named - {"cpu"})


def gpus() -> int:
    """How many NVIDIA GPUs this machine has, as its device files say: nothing heavy is imported to ask."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in DEVICES.glob("nvidia*"))


def configurations() -> dict[str, Path]:
    """The configurations that come with Parley, by name."""
    return {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))}


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a name that is none of the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}" if names else "there are none"


def path_of(config: str) -> Path:
    """The file of a configuration, by path or by name. Raises ConfigError."""
    path = Path(config)
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path
    known = configurations()
    if config not in known:
        raise ConfigError(f"there is no configuration {config!r} ({nearest(config, known)})")
    return known[config]
