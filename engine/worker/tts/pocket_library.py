"""Imports the package pocket_tts without unused dependencies, which saves two thirds of its import time."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from engine.worker.libraries.installed import installed

PACKAGE = "pocket_tts"
_SIGNAL = "scipy.signal"
_IMPORTING = threading.Lock()


def pocket_library() -> Any:
    """Import the package. Raises ConfigError if it is not installed or cannot be loaded."""
    with _without_compiler_and_filters():
        return installed("tts.pocket", PACKAGE, "pocket-tts", "pocket")


@contextmanager
def _without_compiler_and_filters() -> Generator[None]:
    """Keep the package's import from loading torch's compiler and scipy's filters.

    The package only imports the compiler to exclude a function from compilation, and nothing is compiled. The filters
    resample recordings, so they are loaded at the first resampling.
    """
    torch = installed("tts.pocket", "torch", "pocket-tts", "pocket")
    with _IMPORTING:
        disable, there = torch.compiler.disable, _SIGNAL in sys.modules
        torch.compiler.disable = _as_it_is
        if not there:
            sys.modules[_SIGNAL] = _filters()
        try:
            yield
        finally:
            torch.compiler.disable = disable
            if not there:
                del sys.modules[_SIGNAL]


def _as_it_is(target: Any) -> Any:
    return target


def _filters() -> ModuleType:
    def resample_poly(*given: Any, **named: Any) -> Any:
        return importlib.import_module(_SIGNAL).resample_poly(*given, **named)

    module: Any = ModuleType(_SIGNAL)
    module.resample_poly = resample_poly
    return module
