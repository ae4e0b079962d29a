"""The options of nano's stages. Options of the whole family reach every stage, which ignores those of the others."""

from __future__ import annotations

from engine.errors import ConfigError
from engine.worker.stage import StageConfig

OPTIONS = frozenset({"remember_mb", "voice"})


def check_options(config: StageConfig) -> None:
    """Raise ConfigError for an unknown option."""
    if unknown := sorted(map(str, config.options.keys() - OPTIONS)):
        raise ConfigError(f"options: unknown key {', '.join(unknown)}; there are {', '.join(sorted(OPTIONS))}")
