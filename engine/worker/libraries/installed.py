"""Imports of optional packages. Each belongs to an extra and is imported when its stage is created."""

from __future__ import annotations

import importlib
from typing import Any

from engine.deployment.installation import install_command
from engine.errors import ConfigError


def installed(use: str, module: str, package: str, extra: str) -> Any:
    """Import a module of a package that the stage ``use`` needs.

    Raises ConfigError if the package is not installed (with the command that installs it) or cannot be loaded.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{use} needs the package {package}: {install_command(extra)}") from error
    except ImportError as error:
        raise ConfigError(
            f"{use}: the package {package} cannot be imported ({error!s:.200}); install it again"
        ) from error
