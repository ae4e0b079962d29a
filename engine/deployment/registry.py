"""The file name is the registry: a name in a configuration selects a file, and heavy imports happen there."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError


def load(package: str, name: str, export: str) -> Any:
    """Import the module ``package.name`` and return its ``export``. Raises ConfigError with the nearest known name."""
    known = names(package)
    if name not in known:
        raise ConfigError(f"{package.rsplit('.', 1)[-1]}: there is no {name!r} ({nearest(name, known)})")
    with loading(name):
        module = importlib.import_module(f"{package}.{name}")
    if not hasattr(module, export):
        raise ConfigError(f"{name} exports no {export}: it is not one that a configuration can name")
    return getattr(module, export)


@contextmanager
def loading(what: str) -> Generator[None]:
    """Tell what cannot be imported, and why: raises ConfigError in place of the import's own errors."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"{what} cannot be loaded here: {error}; the README says which extra brings that") from error
    except ImportError as error:
        raise ConfigError(f"{what} cannot be loaded here: {error}") from error


def names(package: str) -> list[str]:
    """The names that can be loaded from a package, without importing any of them."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return []
    found = pkgutil.iter_modules(spec.submodule_search_locations)
    return sorted(module.name for module in found if not module.name.startswith("_"))
