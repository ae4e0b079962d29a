"""The controls of the attacks take away guards that are there: a guard that has moved would leave its control idle.

These run with every suite; the attacks themselves do not.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if path.stem != "test_controls")


def controls(name: str) -> Iterator[tuple[str, ast.Module]]:
    """The pieces of code among a module's constants: what a server runs before it serves."""
    module = importlib.import_module(f"tests.attacks.{name}")
    for constant, code in vars(module).items():
        if constant.isupper() and isinstance(code, str) and ("import " in code):
            yield constant, ast.parse(code)


def missing(tree: ast.Module) -> list[str]:
    """Names that the code imports and that are not there, and attributes that it replaces and that nobody has."""
    bound, lost = dict[str, ModuleType | type](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("app", "engine"):
            for alias in node.names:
                found = _named(node.module, alias.name)
                lost += [f"{node.module}.{alias.name}"] if found is None else []
                if found is not None:
                    bound[alias.asname or alias.name] = found
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            first, *path = ast.unparse(target).split(".")
            if isinstance(target, ast.Attribute) and first in bound and not _has(bound[first], path):
                lost.append(".".join([first, *path]))
    return lost


def _has(owner: object, path: list[str]) -> bool:
    for name in path:
        if not hasattr(owner, name):
            return False
        owner = getattr(owner, name)
    return True


def _named(module: str, name: str) -> ModuleType | type | None:
    found = importlib.import_module(module)
    if name == "*":
        return found
    try:
        return getattr(found, name, None) or importlib.import_module(f"{module}.{name}")
    except ImportError:
        return None


@pytest.mark.parametrize("name", MODULES)
def test_what_a_control_takes_away_is_there(name: str) -> None:
    assert {constant: lost for constant, tree in controls(name) if (lost := missing(tree))} == {}


def test_a_guard_that_has_moved_is_found() -> None:
    moved = "from app.realtime import answers\nfrom app import images\n"
    moved += "images.nobody = images.UnweighedImage.none = images._only_picture = 1\n"
    assert missing(ast.parse(moved)) == ["app.realtime.answers", "images.nobody", "images.UnweighedImage.none"]
