"""Count the code of each part of the repository, and properties that make code hard to read.

    python -m benchmarks.code_size [--list]

Blank lines, comments and docstrings do not count; nor does the training of the built-in model. ``--list`` prints every
file with its code lines, largest first, and every class name that two files define.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PARTS = {"app": ("app",), "engine without training": ("engine",), "benchmarks + scripts": ("benchmarks", "scripts")}
FLAT = ("app", "engine", "engine/worker")
SKIPPED = {"training", "node_modules"}
MODEL_FAMILY = re.compile(r"engine/worker/models/\w+/")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """Counts of one file."""

    name: str
    lines: int
    functions: Mapping[str, int]
    """Code lines of each function's body, by its qualified name; see ``body_lines``."""
    classes: frozenset[str]
    """Public classes at the top level."""
    packed: int
    """Assignments of a tuple to attributes, such as ``self.a, self.b = x, y``."""
    unformatted: int
    """``# fmt: skip`` comments."""


def read(text: str, name: str) -> Source:
    """Count the code of one file."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    code = code_lines(text, nodes)
    return Source(
        name,
        lines=len(code),
        functions={where: body_lines(one, code) for where, one in functions(tree)},
        classes=frozenset(one.name for one in tree.body if isinstance(one, ast.ClassDef) and one.name[0] != "_"),
        packed=sum(is_packed(one) for one in nodes),
        unformatted=len(re.findall(r"# fmt: skip$", text, re.MULTILINE)),
    )


def code_lines(text: str, nodes: Sequence[ast.AST]) -> set[int]:
    """Return the numbers of the lines with code. A blank line in a string is code; in a docstring it is not."""
    lines = enumerate(text.splitlines(), start=1)
    code = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    docstrings = set[int]()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= span(node)
        elif isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno:
            code |= span(node)
    return code - docstrings


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield within + child.name, child
        if isinstance(child, Function | ast.ClassDef):
            yield from functions(child, f"{within}{child.name}.")
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from functions(child, within)


def body_lines(function: Function, code: set[int]) -> int:
    """Count the lines of a body. If it is a single ``match``, count only the longest case, because it reads like a
    table.
    """
    match [one for one in function.body if code & span(one)]:
        case [ast.Match(cases=cases)]:
            return max(len(code & set().union(*map(span, case.body))) for case in cases)
        case statements:
            return len(code & set().union(*map(span, statements)))


def span(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def is_packed(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
        return False
    targets = [one for target in node.targets if isinstance(target, ast.Tuple) for one in target.elts]
    return any(isinstance(one, ast.Attribute) for one in targets)


def sources(*folders: str) -> list[Source]:
    """Count every Python file in the given folders."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    kept = [path for path in paths if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return [read(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()) for path in kept]


def flat_modules(folder: str) -> int:
    """Count the modules directly in a folder."""
    return sum(path.stem not in ("__init__", "__main__") for path in (ROOT / folder).glob("*.py"))


def repeated_classes(files: Sequence[Source]) -> dict[str, list[str]]:
    """Return the public class names that several files define, except one per model family."""
    found = defaultdict[str, list[str]](list)
    for file in files:
        for name in file.classes:
            found[name].append(file.name)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1 and not one_per_family(where)}


def one_per_family(files: Sequence[str]) -> bool:
    families = [match[0] for file in files if (match := MODEL_FAMILY.match(file))]
    return len(families) == len(files) == len(set(families))


def report(files: Sequence[Source]) -> Table:
    """Return the table to print; ``files`` are those of app and engine."""
    table = Table("what", "count", title="code size")
    for name, folders in PARTS.items():
        table.add_row(f"code lines: {name}", str(sum(one.lines for one in sources(*folders))))
    table.add_row("tuple-packed attribute assignments (app, engine)", str(sum(one.packed for one in files)))
    table.add_row("`# fmt: skip` (app, engine)", str(sum(one.unformatted for one in files)))
    for folder in FLAT:
        table.add_row(f"modules directly in {folder}/", str(flat_modules(folder)))
    table.add_row("public class names in two files", str(len(repeated_classes(files))))
    table.add_row("longest file", str(max(one.lines for one in files)))
    table.add_row("longest function", str(max(lines for one in files for lines in one.functions.values())))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="every file with its code lines, and repeated class names")
    arguments = parser.parse_args()
    files = sources("app", "engine")
    if arguments.list:
        for file in sorted(files, key=lambda file: -file.lines):
            print(f"{file.lines:5} {file.name}")
        for name, where in repeated_classes(files).items():
            print(f"{name}: {', '.join(where)}")
    Console().print(report(files))


if __name__ == "__main__":
    main()
