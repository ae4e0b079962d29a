"""Sizes of the project's parts in lines of code: no blank line, no comment and no docstring counts.

    python scripts/sizes.py [--list]

Prints each part with the most that it may have, and every file or function that is longer than it may be; ends with 1
if there is any. ``--list`` prints every file with its size, the largest first. The training is not counted: nothing
imports it.

The *aim* is what the project set itself. A part that is beyond its aim may have what it has today, and a little: it is
to shrink, and must not grow unseen. The engine's core grew by workers that join from elsewhere, the search for whose
request broke a worker, turns that owners take, chunks of a closed set of types, and a camera's frames; the app by its
guards against hostile clients, by the commands for models on one's own machine, by the bench of a server under load, by
Responses, by Live, by MCP's tools and by telephones; nano by the rules that answer in its model's place.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
FILE, FUNCTION = 300, 40
"""Lines that a file and a function may have."""
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the project, the most lines that it may have, and the aim where it is beyond that."""

    name: str
    most: int
    aim: int | None = None


CORE = Part("engine core: what both wings share, the server's wing, the worker's loop", 5_610, 4_500)
SHARED = Part("what stages share: worker/llm, worker/remote, and the files that only stages import", 4_490)
NN = Part("engine/worker/nn", 2_140)
KERNELS = Part("engine/worker/kernels: what a GPU computes by kernels of our own", 810)
TALKER = Part("engine/worker/talker", 510)
TRANSITIONS = Part("engine/worker/transitions", 600)
OMNI = Part("engine/worker/omni: what omni families share", 1_700)
APP = Part("app", 20_980, 12_000)
FAMILIES = {"nano": Part("nano", 2_370, 2_000)}
FAMILY, STAGE = 1_500, 250
"""Lines that any other family may have, and a stage by itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: the lines of its code, and those of each of its functions."""

    name: str
    lines: int
    functions: Mapping[str, int]


def read(text: str, name: str) -> Source:
    """Count a file."""
    tree = ast.parse(text)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for one in tokens if one.type not in _SILENT for line in range(one.start[0], one.end[0] + 1)}
    code -= set(_docstrings(tree))
    functions = {where: len(code & _span(one)) for where, one in _functions(tree, "")}
    return Source(name, len(code), functions)


def _docstrings(tree: ast.AST) -> Iterator[int]:
    """The lines of strings that stand for themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _span(node)


def _functions(node: ast.AST, within: str) -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, _Function | ast.ClassDef)
        if isinstance(child, _Function):
            yield within + child.name, child
        yield from _functions(child, f"{within}{child.name}." if named else within)


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def sources() -> list[Source]:
    """Every file that is counted."""
    paths = sorted(path for top in ("app", "engine", "web") for path in (ROOT / top).rglob("*.py"))
    kept = [path for path in paths if not {"training", "node_modules"} & set(path.parts)]
    return [read(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()) for path in kept]


def parts(files: Sequence[Source]) -> dict[Part, int]:
    """Lines of every part."""
    loop, found = _worker_loop(), dict[Part, int]()
    for file in files:
        if (part := _part(file.name, loop)) is not None:
            found[part] = found.get(part, 0) + file.lines
    return found


def _part(name: str, loop: frozenset[str]) -> Part | None:
    match name.split("/"):
        case ["app", *_]:
            return APP
        case ["engine", _] | ["engine", "control", *_]:
            return CORE
        case ["engine", "worker", "models", family, *_] if family != "__init__.py":
            family = family.removesuffix(".py")
            return FAMILIES.get(family, Part(family, FAMILY))
        case ["engine", "worker", "stages", kind, file] if file != "__init__.py":
            return Part(f"{kind}.{file.removesuffix('.py')}", STAGE)
        case ["engine", "worker", "nn", *_]:
            return NN
        case ["engine", "worker", "kernels", *_]:
            return KERNELS
        case ["engine", "worker", "transitions", *_]:
            return TRANSITIONS
        case ["engine", "worker", "talker", *_]:
            return TALKER
        case ["engine", "worker", "omni", *_]:
            return OMNI
        case ["engine", "worker", _]:
            return CORE if name in loop else SHARED
        case ["engine", "worker", "llm" | "remote", *_]:
            return SHARED
        case _:
            return None


def _worker_loop() -> frozenset[str]:
    """The files that a worker's process imports before it knows its stages."""
    graph = grimp.build_graph("engine", cache_dir=None)
    modules = graph.find_upstream_modules("engine.worker.__main__")
    return frozenset(f"{one.replace('.', '/')}.py" for one in (*modules, "engine.worker.__main__"))


def too_large(files: Sequence[Source], sizes: Mapping[Part, int]) -> list[str]:
    """A line for each part, file and function that is larger than it may be."""
    found = [f"{part.name}: {size} lines, {part.most} at most" for part, size in sizes.items() if size > part.most]
    for file in files:
        counts = {file.name: (file.lines, FILE)}
        counts |= {f"{file.name}:{name}": (lines, FUNCTION) for name, lines in file.functions.items()}
        for name, (lines, most) in counts.items():
            if lines > most:
                found.append(f"{name}: {lines} lines, {most} at most")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="every file with its size, the largest first")
    files = sources()
    if parser.parse_args().list:
        for file in sorted(files, key=lambda file: -file.lines):
            print(f"{file.lines:5} {file.name}")
    sizes = parts(files)
    table = Table("part", "lines", "most", "aim")
    for part, size in sizes.items():
        table.add_row(part.name, str(size), str(part.most), str(part.aim or ""))
    Console().print(table)
    large = too_large(files, sizes)
    print("\n".join(large) or f"No file has more than {FILE} lines, no function more than {FUNCTION}.")
    return int(bool(large))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
