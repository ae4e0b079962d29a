"""Lookup of stage types by the name in ``use:``.

=============================  =======================================================================
``nano.talker``                a stage of a family: ``models/nano`` exports ``STAGES``, by name
``llm.openai``                 a single stage: ``stages/llm/openai.py`` exports ``STAGE``
``./my_stage.py``              the user's own file, which exports ``STAGE``; ``./my_stages.py:Ears``: another class
any other name                 an entry point of an installed package, in the group ``parley.stages``
=============================  =======================================================================

Importing a family gives the names of its stages. A stage is imported when its type is requested. No weights are read.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.deployment.config import file_of
from engine.deployment.did_you_mean import nearest
from engine.deployment.registry import load, loading, names
from engine.errors import ConfigError
from engine.worker.stage import StageType

MODELS, STAGES, GROUP = "engine.worker.models", "engine.worker.stages", "parley.stages"


def stage_type(use: str, path: str = "use") -> StageType:
    """Return the stage type of a name. Raises ConfigError, with the nearest name, for an unknown name."""
    if (found := file_of(use)) is not None:
        return _checked(_of_file(*found, path), use, path)
    package, _, name = use.partition(".")
    if package in names(MODELS):
        return _of_family(package, name, path)
    if name and name in names(f"{STAGES}.{package}"):
        return _checked(load(f"{STAGES}.{package}", name, "STAGE"), use, path)
    for point in entry_points(group=GROUP, name=use):
        return _checked(_loaded(point, use, path), use, path)
    raise ConfigError(f"{path}: there is no stage {use!r:.80} ({nearest(use, known())})")


def fault_in(file: str, error: BaseException) -> str:
    """Return an exception as one line, with the last line of a file that it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" ({file}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{where}"


def line_of(model: str) -> tuple[str, ...]:
    """Return the names of a family's stages, in order. Raises ConfigError."""
    stages: Mapping[str, str] = load(MODELS, model, "STAGES")
    return tuple(stages)


def known() -> list[str]:
    """Return every name that can be found without importing anything."""
    ours = [f"{package}.{name}" for package in names(STAGES) for name in names(f"{STAGES}.{package}")]
    return [*ours, *names(MODELS), *(point.name for point in entry_points(group=GROUP))]


def _of_family(family: str, name: str, path: str) -> StageType:
    stages: Mapping[str, str] = load(MODELS, family, "STAGES")
    if name not in stages:
        asked = f"{family}.{name}" if name else family
        uses = [f"{family}.{one}" for one in stages]
        raise ConfigError(f"{path}: there is no stage {asked!r:.80} ({nearest(asked, uses)})")
    return _loaded(EntryPoint(name, stages[name], GROUP), f"{family}.{name}", path)


def _of_file(file: str, export: str, path: str) -> Any:
    """Return an export of the user's own file. The file is executed with the user's rights."""
    name = export or "STAGE"
    if not Path(file).is_file():
        raise ConfigError(f"{path}: there is no file {file}")
    module = _module_of(file, path)
    if not hasattr(module, name):
        classes = _stages_in(module)
        choice = "|".join(classes) or "CLASS"
        hint = f" ({nearest(name, classes)})" if export else f"; name the stage's class: use: {file}:{choice}"
        raise ConfigError(f"{path}: {file} has no {name}{hint}")
    return getattr(module, name)


def _stages_in(module: ModuleType) -> list[str]:
    """Return the names of the stage classes that a file defines."""
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    return list(dict.fromkeys(one.__name__ for one in own if _is_stage_type(one)))


def _module_of(file: str, path: str) -> ModuleType:
    """Return the module of a file. Each file is loaded once."""
    title = f"parley_stage_{hashlib.sha256(file.encode()).hexdigest()[:16]}"
    if title in sys.modules:
        return sys.modules[title]
    spec = importlib.util.spec_from_file_location(title, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module  # msgspec and dataclasses look up a class's module here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[title]
        text = f"{path}: {file} cannot be loaded: {fault_in(file, error)}"
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in ("app", "engine"):
            text += "; Parley's modules are in the package parley_voice: write parley_voice.engine instead of engine"
        elif isinstance(error, ModuleNotFoundError):
            text += "; install it, or move the import into the stage's constructor if only its worker has the package"
        raise ConfigError(text) from error
    return module


def _loaded(point: EntryPoint, use: str, path: str) -> Any:
    with loading(f"{path}: {use}"):
        try:
            return point.load()
        except AttributeError as error:
            raise ImportError(str(error)) from error


def _checked(found: Any, use: str, path: str) -> StageType:
    if not _is_stage_type(found):
        raise ConfigError(f"{path}: {use} is not a stage type: it must be callable and have a describe(config) method")
    stage: Any = found
    return stage


def _is_stage_type(found: Any) -> bool:
    return callable(found) and callable(getattr(found, "describe", None))
