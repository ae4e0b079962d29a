"""The layout of the wheel: one package, whose modules import each other by their new names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.move_imports import MoveError, moved
from scripts.wheel_layout import stage

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"app", "app.cli", "engine", "engine.chunk", "engine.worker", "engine.worker.stages", "web"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from engine.chunk import Text, kinds", "from parley_voice.engine.chunk import Text, kinds"),
        ("from engine import chunk", "from parley_voice.engine import chunk"),
        ("import engine", "from parley_voice import engine"),
        ("import web as page", "import parley_voice.web as page"),
        ("import os, engine.chunk as chunk", "import os, parley_voice.engine.chunk as chunk"),
        ("if x:\n    from engine.chunk import (\n        Text,\n    )", None),
        ("é = 1; from app.cli import main", "é = 1; from parley_voice.app.cli import main"),
        ("load('engine.worker', name)", "load('parley_voice.engine.worker', name)"),
        ('load(r"app.cli:main")', 'load(r"parley_voice.app.cli:main")'),
        ('names(f"engine.worker.stages.{kind}")', 'names(f"parley_voice.engine.worker.stages.{kind}")'),
    ],
)
def test_references_to_modules_move(before: str, after: str | None) -> None:
    expected = after or before.replace("from engine", "from parley_voice.engine")
    assert moved(before, MODULES) == expected
    assert moved(expected, MODULES) == expected


@pytest.mark.parametrize(
    "source",
    [
        "from . import chunk",
        "from engines import engine",
        "import webrtc",
        '"""engine.chunk"""',
        'log("engine.failed")',  # no module
        'open("web")',
        'x = {"engine": 1}["engine"]',
        "engine.chunk = 1",
        'f"{engine}.chunk and engine.worker.stages."',
    ],
)
def test_everything_else_stays(source: str) -> None:
    assert moved(source, MODULES) == source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import engine.chunk", r"a\.py:1: `import engine\.chunk`: write `from engine\.chunk import"),
        ("\nimport app, web", r"a\.py:2: `import app`"),
        ('x = """\nfrom engine.chunk import Text\n"""', r"a\.py:1: a string with an import"),
        ("f\"{load('engine.chunk')}\"", r"a\.py:1: the path of a module inside an f-string"),
    ],
)
def test_a_reference_that_cannot_move_ends_the_build(source: str, message: str) -> None:
    with pytest.raises(MoveError, match=message):
        moved(source, MODULES, "a.py")


def test_the_wheel_s_layout_has_no_reference_to_a_package_of_the_repository(tmp_path: Path) -> None:
    stage(ROOT, tmp_path)
    package = tmp_path / "parley_voice"
    assert {one.name for one in package.iterdir()} == {"__init__.py", "app", "configs", "engine", "web"}
    files = list(package.rglob("*.py"))
    assert len(files) > 500
    imported = {name for file in files for name in names_of(file)}
    assert imported & {"app", "engine", "web"} == set()
    assert "parley_voice" in imported
    assert not (package / "engine" / "training").exists()


def names_of(file: Path) -> set[str]:
    """The first names of the modules that a file imports, or that a string in it is the path of."""
    found = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found.update(name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module)
            case ast.Constant(value=str(text)) if re.fullmatch(r"(app|engine|web)(\.\w+)+\.?", text):
                path = ROOT / text.rstrip(".").replace(".", "/")
                if path.exists() or path.with_suffix(".py").exists():
                    found.add(text)
            case _:
                pass
    return {name.partition(".")[0] for name in found}
