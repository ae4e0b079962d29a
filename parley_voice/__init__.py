"""The import name of Parley: ``parley_voice.app``, ``parley_voice.engine`` and ``parley_voice.web``.

The wheel contains the three packages here, and has no other top-level package. In the repository they are the folders
``app``, ``engine`` and ``web``; there this module makes both names of a module mean the same object, and
``python -m parley_voice.app`` run the same file. scripts/build_backend.py leaves this module out of the wheel.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

PACKAGES = frozenset({"app", "engine", "web"})


class AliasFinder(MetaPathFinder):
    """Finds ``parley_voice.engine.chunk`` as ``engine.chunk``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(".")
        if prefix != __name__ or name.partition(".")[0] not in PACKAGES:
            return None
        found = importlib.util.find_spec(name)
        if found is None:
            return None
        alias = ModuleSpec(fullname, _AliasLoader(found), origin=found.origin)
        alias.submodule_search_locations = found.submodule_search_locations
        return alias


class _AliasLoader(InspectLoader):
    """Loads the module of another spec."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(self._spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Undo the one change that the import system made to the module; its code has run."""
        module.__spec__ = self._spec

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code, which ``python -m`` runs."""
        assert isinstance(self._spec.loader, InspectLoader)
        return self._spec.loader.get_code(self._spec.name)

    def get_source(self, fullname: str) -> str | None:
        assert isinstance(self._spec.loader, InspectLoader)
        return self._spec.loader.get_source(self._spec.name)


# Before the others: the path of parley_voice.engine is that of engine, where they would load a second copy.
sys.meta_path.insert(0, AliasFinder())
