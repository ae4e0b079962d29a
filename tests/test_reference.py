"""The tables of settings are what the code says, and no key of a configuration is without a sentence."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from app.settings import Settings
from engine.deployment.config import EngineSpec
from engine.deployment.model_catalog import catalogue
from scripts import reference

OPTIONS = "engine/worker"
"""The folder whose stages read their options by ``build``."""


def shown() -> set[str]:
    """The dataclasses that some page has a table of."""
    texts = [page.read_text(encoding="utf-8") for page in reference.pages()]
    blocks = [block for text in texts for block in reference.BLOCK.findall(text)]
    bases = {base for block in blocks for base in block[2].split()}
    names = {block[1] for block in blocks}
    assert bases <= names, "a row that a table omits is in the table of its base"
    return names - {"models"}


def within(kind: Any) -> Iterator[str]:
    """A dataclass, and those that its keys hold, by their paths."""
    yield f"{kind.__module__}.{kind.__qualname__}"
    for hint in get_type_hints(kind).values():
        for one in (hint, *get_args(hint)):
            if is_dataclass(one):
                yield from within(one)


def built() -> Iterator[str]:
    """The dataclasses that stages build of their options, by their paths."""
    for path in (reference.ROOT / OPTIONS).rglob("*.py"):
        module = ".".join(path.relative_to(reference.ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (f"{module}.{name}" for name in _built_in(tree, ""))


def _built_in(node: ast.AST, owner: str) -> Iterator[str]:
    """The names of the dataclasses; ``cls`` is the class ``owner`` around the call."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Call(func=ast.Name(id="build"), args=[ast.Name(id=name), ast.Call(func=ast.Name(id="dict")), _]):
                yield owner if name == "cls" else name
            case _:
                yield from _built_in(child, child.name if isinstance(child, ast.ClassDef) else owner)


def test_the_pages_are_what_the_code_says() -> None:
    command = [sys.executable, str(reference.ROOT / "scripts" / "reference.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"run python scripts/reference.py: {result.stdout}{result.stderr}"


def test_the_catalogue_has_every_current_model_once() -> None:
    names = re.findall(
        r"`([\w.-]+)`", " ".join(re.findall(r"^\| (`[^|]+) \|", reference.table("models"), re.MULTILINE))
    )
    assert sorted(names) == sorted(one.name for one in catalogue().values() if not one.superseded_by)


def test_every_part_of_a_configuration_has_its_table() -> None:
    options = set(built())
    assert len(options) >= 8
    assert {*within(EngineSpec), *within(Settings), *options} <= shown()


@pytest.mark.parametrize("name", sorted(shown()))
def test_every_key_stands_there_once_with_its_sentence(name: str) -> None:
    rows = list(reference.keys(reference.kind_of(name)))
    assert [key.strip("`") for key, *_ in rows] == [one.name.rstrip("_") for one in fields(reference.kind_of(name))]
    assert all(sentence.endswith(".") for *_, sentence in rows)


def test_options_that_are_read_one_by_one_are_there_too() -> None:
    """Those of omni models; the scripts are for tests."""
    sources = [path for path in (reference.ROOT / OPTIONS).rglob("*.py") if not path.stem.startswith("script")]
    found = {key for path in sources for key in re.findall(r'options\.get\(\s*"(\w+)"', path.read_text("utf-8"))}
    page = (reference.ROOT / "configs" / "SETTINGS.md").read_text(encoding="utf-8").partition("omni models")[2]
    assert found == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


@dataclass
class Example:
    """An example."""

    width: int | None = 3
    """The width, or ``None``."""
    depth: int = 4


@dataclass
class Longer(Example):
    """The example with another default and one more key."""

    width: int | None = 4
    """The width, or ``None``."""
    height: int = 5
    """The height."""
    depth: int = 4
    """The depth."""


@dataclass
class Base:
    """Of which one row is that of ``Longer``."""

    width: int = 3
    """The width."""
    depth: int = 4
    """The depth."""


def test_a_table_omits_the_rows_of_a_base_that_are_the_same() -> None:
    text = f"<!-- generated: {__name__}.Longer without {__name__}.Base -->\nold\n<!-- end -->"
    rows = re.findall(r"^\| `(\w+)` \|", reference.written(text), re.MULTILINE)
    assert rows == ["width", "height"]


def test_a_key_without_a_sentence_is_refused(tmp_path: Path) -> None:
    found = reference.keys(Example)
    assert next(found) == ("`width`", "integer", "`3`", "The width, or `None`.")
    with pytest.raises(LookupError, match=r"Example\.depth has no description"):
        next(found)
