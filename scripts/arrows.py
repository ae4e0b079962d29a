"""How the files of the project hang together: how many import each other, and where they do so in a circle.

    python scripts/arrows.py [FOLDER] [--list]

An arrow is a pair of files of which one imports something of the other; those within FOLDER (app/realtime, unless
another one is named) are counted, and those between its rooms, its folders, that run both ways. Circles are looked for
in the whole tree. What is imported in a function, or for types alone, counts as any. Ends with 1 where there is a
circle.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ("app", "engine", "web")

Arrows = Mapping[Path, set[Path]]
"""Which files each file imports something of; paths from the root on."""


def arrows(root: Path = ROOT) -> Arrows:
    """All arrows of the tree."""
    files = {_name(path): path for folder in TREE for path in _sources(root, folder)}
    found = defaultdict[Path, set[Path]](set)
    for name, path in files.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        text = (root / path).read_text(encoding="utf-8")
        for names in _imports(ast.parse(text, str(path)), package):
            target = next((files[one] for one in names if one in files), path)
            if target != path:
                found[path].add(target)
    return found


def within(found: Arrows, folder: str) -> list[tuple[Path, Path]]:
    """The arrows between files of one folder, in order."""
    inside = Path(folder)
    pairs = [(one, other) for one, others in found.items() for other in others]
    return sorted((one, other) for one, other in pairs if inside in one.parents and inside in other.parents)


def back(pairs: list[tuple[Path, Path]], folder: str) -> list[tuple[Path, Path]]:
    """Of those, the arrows between two rooms that import each other."""
    rooms = {(_room(one, folder), _room(other, folder)) for one, other in pairs}
    return [
        (one, other)
        for one, other in pairs
        if (a := _room(one, folder)) != (b := _room(other, folder)) and (b, a) in rooms and "" not in (a, b)
    ]


def circle(found: Arrows) -> list[Path]:
    """Files that import each other in a circle, the first one again at the end; empty if none do."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _sources(root: Path, folder: str) -> Iterator[Path]:
    for path in sorted((root / folder).rglob("*.py")):
        if "node_modules" not in path.parts:
            yield path.relative_to(root)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module, package: str) -> Iterator[tuple[str, ...]]:
    """What each import may mean, the first that is a module: of ``from a import b`` it is ``a.b``, or ``a``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.name,) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((f"{module}.{one.name}", module) for one in node.names)


def _room(path: Path, folder: str) -> str:
    inside = path.relative_to(folder).parts
    return inside[0] if len(inside) > 1 else ""


def main() -> int:
    """Print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="app/realtime")
    parser.add_argument("--list", action="store_true", help="every arrow within the folder")
    asked = parser.parse_args()
    found = arrows()
    pairs = within(found, asked.folder)
    if asked.list:
        for one, other in pairs:
            print(f"{one} -> {other}")
    files = {file for pair in pairs for file in pair}
    print(f"{asked.folder}: {len(pairs)} arrows between {len(files)} files, {len(back(pairs, asked.folder))} run back")
    closed = circle(found)
    print(f"circles in the whole tree: {' -> '.join(map(str, closed)) or 'none'}")
    return int(bool(closed))


if __name__ == "__main__":
    sys.exit(main())
