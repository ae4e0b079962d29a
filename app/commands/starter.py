"""The configuration that `parley serve` starts without being told one: the starter, or nano while a part is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from app.commands.deployment import DEFAULT, path_of
from engine import load_config
from engine.deployment.model_catalog import catalogue, manifest_of, models_folder

STARTER = "starter"
PACKAGES = {"sherpa_onnx": "sherpa-onnx", "xllamacpp": "xllamacpp"}
"""The packages that the starter needs besides the base installation, by their module."""


def models_of(config: str) -> list[str]:
    """Return the catalogue's models that a configuration names, in its order. Raises ConfigError."""
    spec = load_config(path_of(config))
    named = [*([spec.weights] if spec.weights else []), *(name for stage in spec.stages for name in stage.all_weights)]
    return [name for name in dict.fromkeys(named) if name in catalogue()]


def missing_models(config: str) -> list[str]:
    """Return those of the models that are not on this machine. Raises ConfigError."""
    return [name for name in models_of(config) if manifest_of(models_folder() / name) is None]


def starter_or_nano(say: Callable[[str], None]) -> str:
    """Return the starter's name; while a part of it is missing, nano's, and ``say`` one sentence with the command."""
    packages = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    models = missing_models(STARTER)
    if not packages and not models:
        return STARTER
    missing = " and ".join([*packages, *models])
    size = sum(catalogue()[name].size_mb for name in models)
    commands = ["`pip install 'parley[local]'`"] * bool(packages) + [f"`parley pull --config {STARTER}`"] * bool(models)
    say(
        f"The built-in model answers for now, a few dozen requests, because {missing} "
        f"{'is' if len(packages) + len(models) == 1 else 'are'} not on this machine; "
        f"{' and '.join(commands)} {'gets' if len(commands) == 1 else 'get'} what is missing"
        f"{f' ({size} MB)' if size else ''}."
    )
    return DEFAULT
