"""Identifiers that still bear a word which the project has given up for the field's own; fails where one is left.

    python scripts/words.py [--where | --check] [tip heard ...]

The table is `scripts/words.toml`: the old words, the new one, and the packages that are looked into, since a word may
be right elsewhere. Identifiers and the names of modules are counted, by syntax tree; what is said on the wire or in
prose is no identifier. An identifier bears a word if that is one of its parts: ``tip`` is in ``next_tip``, not in
``multiple``. A word with a capital is looked for in names of classes alone.

`right` says where a word stays and why, `waits` why a whole row is still to come: what is listed so is shown, and does
not fail. An exception that nothing needs any more does.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXEMPT = "training"
"""The folders that are not looked into: how weights were made, which nothing imports."""
OURS = ("app", "engine", "scripts", "tests", "web")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the old words of one meaning."""

    old: Sequence[str]
    new: str
    packages: Sequence[str]
    """Files or folders, from the root of the repository."""
    right: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons, by identifier, by file or folder, or by both as ``PATH:IDENTIFIER``."""
    waits: str = ""

    def covers(self, path: str) -> bool:
        return any(path == package or path.startswith(f"{package}/") for package in self.packages)

    def bears(self, identifier: str) -> bool:
        """Whether an identifier has one of the old words."""
        return any(f"_{old}_" in f"_{'_'.join(parts(identifier, old[0].isupper()))}_" for old in self.old)

    def excuses(self, path: str, identifier: str) -> list[str]:
        """The exceptions for an identifier of a file."""
        return [key for key in self.right if key == identifier or _within(key, path, identifier)]


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only the rows of these old words")
    parser.add_argument("--where", action="store_true", help="name the line of each identifier that is left")
    parser.add_argument("--check", action="store_true", help="say only what fails")
    options = parser.parse_args(arguments)
    table = [row for row in rows(root) if not options.words or {*options.words} & {*row.old}]
    names = {path: list(identifiers(root / path)) for path in sources(root, table)}
    found = [counted(row, names) for row in table]
    for one in found:
        if one.failures or not options.check:
            show(one, options.where)
    failures, listed = sum(one.failures for one in found), sum(one.listed for one in found)
    print(f"{len(table)} rows of old words: {failures} left, {listed} listed with their reason")
    return int(failures > 0)


def rows(root: Path = ROOT) -> list[Row]:
    """The table. Raises TypeError for a key that it does not know."""
    return [Row(**one) for one in tomllib.loads((root / "scripts" / "words.toml").read_text(encoding="utf-8"))["word"]]


def sources(root: Path, table: Sequence[Row]) -> list[str]:
    """The Python files that the rows look into. Raises FileNotFoundError for a package that is not there."""
    found: set[str] = set()
    for package in {package for row in table for package in row.packages}:
        if not (root / package).exists():
            raise FileNotFoundError(f"scripts/words.toml: there is no {package}")
        files = [root / package] if package.endswith(".py") else (root / package).rglob("*.py")
        found |= {str(file.relative_to(root)) for file in files}
    return sorted(path for path in found if EXEMPT not in Path(path).parts)


def identifiers(file: Path) -> Iterator[tuple[str, int]]:
    """Every identifier of a module, its own name first, with the line it is in."""
    yield file.stem, 1
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        line: int = getattr(node, "lineno", 0)
        for name in names_of(node):
            yield name, line


def names_of(node: ast.AST) -> Sequence[str]:
    """The identifiers that a node of a syntax tree has itself."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
            return [name]
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.MatchClass(kwd_attrs=names) | ast.Global(names=names) | ast.Nonlocal(names=names):
            return names
        case ast.Import(names=aliases):
            return [name for one in aliases for name in _imported(one, one.name)]
        case ast.ImportFrom(module=module, names=aliases):
            own = (module or "").split(".") if _ours(module) else []
            return [*own, *(name for one in aliases for name in _imported(one, module))]
        case _:
            return []


def _imported(alias: ast.alias, module: str | None) -> list[str]:
    """Return what an import calls a name here, and what it is called there if that is ours to choose."""
    return [*(alias.name.split(".") if _ours(module) else []), *([alias.asname] if alias.asname else [])]


def _ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] in OURS


def parts(identifier: str, of_class: bool) -> list[str]:
    """The words of an identifier; of one that is no class's, in small letters."""
    if of_class:
        return _PART.findall(identifier) if any(map(str.islower, identifier)) else []
    return [] if identifier.lstrip("_")[:1].isupper() and not identifier.isupper() else identifier.lower().split("_")


def _within(key: str, path: str, identifier: str) -> bool:
    where, _, name = key.partition(":")
    where = where.rstrip("/") if "/" in where else "?"
    return (path == where or path.startswith(f"{where}/")) and name in ("", identifier)


@dataclass(frozen=True, slots=True)
class Count:
    """The findings of a row: the places that have no exception, how many have one, and the exceptions in vain."""

    row: Row
    left: Sequence[tuple[str, int, str]]
    excused: int
    unneeded: Sequence[str]

    @property
    def failures(self) -> int:
        return len(self.unneeded) + (0 if self.row.waits else len(self.left))

    @property
    def listed(self) -> int:
        return self.excused + (len(self.left) if self.row.waits else 0)


def counted(row: Row, names: Mapping[str, Sequence[tuple[str, int]]]) -> Count:
    """``names`` are the identifiers of each file, with their lines."""
    own = [(path, line, name) for path in names if row.covers(path) for name, line in names[path] if row.bears(name)]
    left = [(path, line, name) for path, line, name in own if not row.excuses(path, name)]
    needed = {key for path, _, name in own for key in row.excuses(path, name)}
    return Count(row, left, len(own) - len(left), sorted(set(row.right) - needed))


def show(count: Count, where: bool) -> None:
    row, left = count.row, count.left
    waits = f" ({row.waits})" if left and row.waits else ""
    print(f"{', '.join(row.old)} → {row.new}: {len(left)} left{waits}")
    for path, line, name in left if where else ():
        print(f"    {path}:{line} {name}")
    for path, number in Counter(path for path, _, _ in left).items() if not where else ():
        print(f"    {path} {number}")
    for key in count.unneeded:
        print(f"    {key}: nothing needs this exception any more")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
