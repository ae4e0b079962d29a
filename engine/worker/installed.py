"""The packages that stages compute with: each comes with an extra of this one, and is imported where a stage is made.

Knows no stage, and nothing of what is in a package.
"""

from __future__ import annotations

import importlib
from typing import Any

from engine.errors import ConfigError


def installed(use: str, module: str, package: str, extra: str) -> Any:
    """A module of a package that ``use`` needs. Raises ConfigError where the package is not installed, with what
    installs it, and where it cannot be loaded on this machine."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{use} needs the package {package}: pip install 'parley[{extra}]'") from error
    except ImportError as error:
        raise ConfigError(f"{use}: the package {package} cannot be loaded here ({error!s:.200})") from error
