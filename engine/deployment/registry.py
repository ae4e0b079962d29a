"""Lookup of modules by name. The file name is the registry: heavy imports happen only when a name is used."""

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
    """Import the module ``package.name`` and return its ``export``.

    Raises:
        ConfigError: The name is unknown (the message names the nearest one), or the import fails.
    """
    known = names(package)
    if name not in known:
        raise ConfigError(f"{package.rsplit('.', 1)[-1]}: there is no {name!r} ({nearest(name, known)})")
    with loading(name):
        module = importlib.import_module(f"{package}.{name}")
    if not hasattr(module, export):
        raise ConfigError(f"{name} cannot be named in a configuration: it exports no {export}")
    return getattr(module, export)


@contextmanager
def loading(what: str) -> Generator[None]:
    """Convert import errors in the block to ConfigErrors that name ``what`` and the reason."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f"{what} cannot be imported: {error}; the README says which extra brings that") from error
    except ImportError as error:
        raise ConfigError(f"{what} cannot be imported: {error}") from error


def names(package: str) -> list[str]:
    """Return the names of a package's modules without importing them."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return []
    found = pkgutil.iter_modules(spec.submodule_search_locations)
    return sorted(module.name for module in found if not module.name.startswith("_"))
