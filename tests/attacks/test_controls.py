"""The controls of the attacks take away guards that are there: a guard that has moved would leave its control idle.

These run with every suite; the attacks themselves do not.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("test_*.py") if path.stem != "test_controls")


def controls(source: str) -> Iterator[tuple[int, ast.Module]]:
    """The pieces of code among a module's strings, by their lines: what a server runs before it serves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            with suppress(SyntaxError):  # it is a sentence
                yield node.lineno, ast.parse(node.value)


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
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert {line: lost for line, tree in controls(source) if (lost := missing(tree))} == {}


def test_what_is_named_where_it_is_used_is_found() -> None:
    source = 'async with attacked(before="from app.limits import http_slots; http_slots.SHARE = 1.0"): pass'
    assert [missing(tree) for _, tree in controls(source)] == [["http_slots.SHARE"]]


def test_a_guard_that_has_moved_is_found() -> None:
    moved = "from app.realtime import answers\nfrom app.media import images\n"
    moved += "images.nobody = images.UnweighedImage.none = images._only_picture = 1\n"
    assert missing(ast.parse(moved)) == ["app.realtime.answers", "images.nobody", "images.UnweighedImage.none"]
