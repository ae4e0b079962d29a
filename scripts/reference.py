"""Regenerate the tables of settings in the documentation from the code: key, type, default, description.

    python scripts/reference.py [--check]

``<!-- generated: app.settings.Limits -->`` in a page starts the table of a dataclass, ``generated: models`` that of the
model catalogue, and ``<!-- end -->`` ends it. ``generated: CLASS without BASE`` omits the rows that the table of BASE
has. Descriptions are the strings below the fields. ``--check`` writes nothing and fails if a page is out of date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- generated: (\S+)(?: without ([\S ]+?))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MOST_LANGUAGES = 6
"""Maximum number of a model's languages to list by name."""
WORDS: Mapping[object, str] = {str: "text", int: "integer", float: "number", bool: "boolean", Mapping: "mapping"}


def pages() -> list[Path]:
    """Return the pages that contain generated tables."""
    command = ["git", "grep", "--untracked", "-l", "<!-- generated: ", "--", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names]


def written(text: str) -> str:
    """Return a page's text with current tables."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{table(block[2], (block[3] or '').split())}\n{block[5]}", text)


def table(name: str, bases: Sequence[str] = ()) -> str:
    """Return the table of a dataclass without the rows of its ``bases``, or that of the model catalogue."""
    if name == "models":
        return _lines("Name", "Stage", "Licence", "Size", "Languages", "Repository", rows=_models())
    shown = {row for base in bases for row in keys(kind_of(base))}
    rows = (row for row in keys(kind_of(name)) if row not in shown)
    return _lines("Key", "Type", "Default", "Meaning", rows=rows)


def kind_of(name: str) -> type[Any]:
    """Import a dataclass by its dotted path."""
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(module), name)


def keys(kind: type[Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield each key of a dataclass: name, type, default, description. Raises LookupError if a description is
    missing.
    """
    hints, sentences = get_type_hints(kind), _sentences(kind)
    for one in fields(kind):
        if one.name not in sentences:
            raise LookupError(f"{kind.__qualname__}.{one.name} has no description. Write a docstring below the field.")
        yield f"`{one.name.rstrip('_')}`", _type(hints[one.name]), _default(one), sentences[one.name]


def _sentences(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields, including those of base classes, each on one line."""
    found: dict[str, str] = {}
    for one in reversed([base for base in kind.__mro__ if is_dataclass(base)]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
        for field, below in pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split()).replace("``", "`").replace("|", "\\|")
                case _:
                    pass
    return found


def _type(hint: Any) -> str:
    arguments = [one for one in get_args(hint) if one not in (NoneType, ...)]
    match get_origin(hint):
        case None:
            return "section" if is_dataclass(hint) else WORDS[hint]
        case origin if origin is Literal:
            return ", ".join(f"`{one}`" for one in arguments)
        case origin if origin is tuple:
            return "list" if is_dataclass(arguments[0]) else f"list of {_type(arguments[0])}"
        case origin if origin in WORDS:
            return WORDS[origin]
        case _:
            return " or ".join(dict.fromkeys(map(_type, arguments)))


def _default(one: Field[Any]) -> str:
    made = one.default_factory() if one.default_factory is not MISSING else one.default
    if made is MISSING:
        return "required"
    if made in (None, (), "", {}):
        return "none"
    if is_dataclass(made):
        return ""
    if isinstance(made, tuple):
        return ", ".join(f"`{part}`" for part in made)
    return f"`{made:g}`" if isinstance(made, float) else f"`{yaml.safe_dump(made, width=10_000).splitlines()[0]}`"


def _models() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the catalogue. Models that differ only in their languages share one."""
    from engine.deployment.model_catalog import catalogue

    alike: dict[tuple[str, ...], tuple[list[str], dict[str, None]]] = {}
    for one in catalogue().values():
        if not one.superseded_by:
            licence = ", ".join((one.licence, *one.restrictions))
            names, languages = alike.setdefault((one.use, licence, _size(one.size_mb), one.origin), ([], {}))
            names.append(f"`{one.name}`")
            languages |= dict.fromkeys(one.languages)
    for (use, licence, size, origin), (names, languages) in alike.items():
        spoken = ", ".join(languages) if len(languages) <= MOST_LANGUAGES else f"{len(languages)} languages"
        yield ", ".join(names), f"`{use}`", licence, size, spoken, origin


def _size(size_mb: int) -> str:
    return f"{size_mb} MB" if size_mb < 1000 else f"{size_mb / 1000:.1f} GB"


def _lines(*names: str, rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (names, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(names), *lines[1:]]) + "\n"


def main(arguments: list[str]) -> int:
    stale = {page: new for page in pages() if (new := written(page.read_text(encoding="utf-8"))) != page.read_text()}
    for page, text in stale.items():
        print(
            f"{page.relative_to(ROOT)} {'is out of date; run python scripts/reference.py' if arguments else 'updated'}"
        )
        if not arguments:
            page.write_text(text, encoding="utf-8")
    return int(bool(arguments and stale))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
