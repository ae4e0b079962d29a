"""Imports between the files of the project: how many there are in one package, and where they form a circle.

    python scripts/arrows.py [PACKAGE] [--list]

An arrow is a pair of modules of which one imports something of the other; those within PACKAGE (app.realtime, unless
another one is named) are counted, and those between its rooms, its packages, that run both ways. Circles are looked for
in the whole tree. What is imported in a function, or for types alone, counts as any. Ends with 1 where there is a
circle. Reads imports as ``lint-imports`` does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import grimp

TREE = ("app", "engine", "web")

Arrow = tuple[str, str]
"""The importing module, and the imported one."""


def within(graph: grimp.ImportGraph, package: str) -> list[Arrow]:
    """The arrows between modules of one package, in order."""
    inside = graph.find_descendants(package)
    return sorted((one, other) for one in inside for other in graph.find_modules_directly_imported_by(one) & inside)


def back(graph: grimp.ImportGraph, package: str) -> list[Arrow]:
    """Return the arrows of ``within`` between two rooms that import each other."""
    rooms = [one for one in graph.find_children(package) if graph.find_children(one)]
    room = {module: one for one in rooms for module in (one, *graph.find_descendants(one))}
    pairs = [pair for pair in within(graph, package) if room.keys() >= set(pair)]
    between = {(room[one], room[other]) for one, other in pairs}
    return [(a, b) for a, b in pairs if room[a] != room[b] and (room[b], room[a]) in between]


def circles(graph: grimp.ImportGraph) -> list[list[str]]:
    """Every group of modules of which each one imports, by itself or through others, all the others of its group."""
    found: list[list[str]] = []
    for module in sorted(graph.modules):
        if not any(module in group for group in found):
            others = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
            found += [sorted({module, *others})] if others else []
    return found


def main() -> int:
    """Print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", nargs="?", default="app.realtime")
    parser.add_argument("--list", action="store_true", help="every arrow within the package")
    asked = parser.parse_args()
    graph = grimp.build_graph(*TREE, cache_dir=None)
    pairs = within(graph, asked.package)
    if asked.list:
        for one, other in pairs:
            print(f"{one} -> {other}")
    modules = {module for pair in pairs for module in pair}
    returning = len(back(graph, asked.package))
    print(f"{asked.package}: {len(pairs)} arrows between {len(modules)} modules, {returning} run back")
    closed = circles(graph)
    print(f"circles in the whole tree: {len(closed)}")
    for group in closed:
        print(f"  {', '.join(group)}")
    return int(bool(closed))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
