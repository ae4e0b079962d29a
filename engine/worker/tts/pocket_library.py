"""The package of Pocket TTS, imported without what no voice needs: two thirds of what its import takes.

Knows nothing of what is in the package, but for what it imports.
"""

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
    """The package. Raises ConfigError where it is not installed, or cannot be loaded on this machine."""
    with _without_compiler_and_filters():
        return installed("tts.pocket", PACKAGE, "pocket-tts", "pocket")


@contextmanager
def _without_compiler_and_filters() -> Generator[None]:
    """Keep the package, while it is imported, from loading torch's compiler, for a function that is not to be compiled
    (nothing is), and scipy's filters, which resample recordings: those are loaded where one is resampled."""
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
