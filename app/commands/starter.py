"""The default configuration of `parley serve`: the starter, or nano if a part of the starter is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from app.commands.deployment import DEFAULT, path_of
from engine import load_config
from engine.deployment.installation import install_command
from engine.deployment.model_catalog import CatalogModel, missing_models

STARTER = "starter"
PACKAGES = {"sherpa_onnx": "sherpa-onnx", "xllamacpp": "xllamacpp"}
"""Packages that the starter needs in addition to the base installation, by module."""


def missing_of(config: str) -> list[CatalogModel]:
    """Return the catalogue models that a configuration needs and this machine lacks. Raises ConfigError."""
    spec = load_config(path_of(config))
    named = [name for stage in spec.stages for name in stage.all_weights]
    return missing_models([spec.weights, *named] if spec.weights else named)


def starter_or_nano(say: Callable[[str], None]) -> str:
    """Return "starter", or "nano" if a part of the starter is missing; ``say`` then receives a sentence with the
    command.
    """
    packages = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    models = missing_of(STARTER)
    if not packages and not models:
        return STARTER
    missing = " and ".join([*packages, *(model.name for model in models)])
    size = sum(model.size_mb for model in models)
    commands = [f"`{install_command('local')}`"] * bool(packages) + [f"`parley pull --config {STARTER}`"] * bool(models)
    say(
        f"The built-in model answers for now, a few dozen requests, because {missing} "
        f"{'is' if len(packages) + len(models) == 1 else 'are'} not on this machine; "
        f"{' and '.join(commands)} {'gets' if len(commands) == 1 else 'get'} what is missing"
        f"{f' ({size} MB)' if size else ''}."
    )
    return DEFAULT
