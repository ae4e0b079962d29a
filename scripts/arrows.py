"""Imports between the files of the project: how many there are in one package, and where they form a circle.

    python scripts/arrows.py [PACKAGE] [--list]

An arrow is a pair of modules of which one imports something of the other; those within PACKAGE (app.realtime, unless
another one is named) are counted: all of them; those that are left where each room, a package of PACKAGE, is taken for
one; those between rooms that run both ways; and those that pass a room's door, its ``__init__``, by.

Circles are looked for in the whole tree. What is imported in a function, or for types alone, counts as any. Ends with 1
where there is a circle. Reads imports as ``lint-imports`` does.
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


def rooms(graph: grimp.ImportGraph, package: str) -> dict[str, str]:
    """Return the room of each module that is in one: a package within ``package``."""
    found = [one for one in graph.find_children(package) if graph.find_children(one)]
    return {module: one for one in found for module in (one, *graph.find_descendants(one))}


def between(graph: grimp.ImportGraph, package: str) -> list[Arrow]:
    """Return the arrows that are left where each room is taken for one module."""
    room = rooms(graph, package)
    pairs = {(room.get(one, one), room.get(other, other)) for one, other in within(graph, package)}
    return sorted((one, other) for one, other in pairs if one != other)


def past_doors(graph: grimp.ImportGraph, package: str) -> list[Arrow]:
    """Return the arrows of ``within`` that enter a room elsewhere than by its ``__init__``."""
    room = rooms(graph, package)
    return [(a, b) for a, b in within(graph, package) if b in room and room[b] not in (b, room.get(a))]


def back(graph: grimp.ImportGraph, package: str) -> list[Arrow]:
    """Return the arrows of ``within`` between two rooms that import each other."""
    room = rooms(graph, package)
    pairs = [pair for pair in within(graph, package) if room.keys() >= set(pair)]
    joined = {(room[one], room[other]) for one, other in pairs}
    return [(a, b) for a, b in pairs if room[a] != room[b] and (room[b], room[a]) in joined]


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
    returning, past = len(back(graph, asked.package)), len(past_doors(graph, asked.package))
    print(f"{asked.package}: {len(pairs)} arrows between {len(modules)} modules; {past} pass a door by")
    taken = len(between(graph, asked.package))
    print(f"{asked.package}, each room taken for one: {taken} arrows, {returning} run back")
    closed = circles(graph)
    print(f"circles in the whole tree: {len(closed)}")
    for group in closed:
        print(f"  {', '.join(group)}")
    return int(bool(closed))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
