"""Move a module into the package ``parley_voice``: ``from engine.chunk import`` names ``parley_voice.engine.chunk``.

Changes the imports of ``app``, ``engine`` and ``web``, and the strings that are the path of one of their modules, as in
``load("engine.worker.stages.llm", ...)``. No line is added or removed. A reference that it cannot change is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

PACKAGE = "parley_voice"
MOVED = ("app", "engine", "web")

_PREFIX = f"{PACKAGE}.".encode()
_QUOTES = re.compile(rb"[A-Za-z]*(\"\"\"|'''|\"|')")
_CODE = re.compile(rf"^\s*(from|import)\s+({'|'.join(MOVED)})\b", re.MULTILINE)


class MoveError(Exception):
    """A reference to a moved package that cannot be changed; the message says where, and what to write instead."""


@dataclass(frozen=True, slots=True, order=True)
class _Edit:
    """Replace the bytes of a line from ``start`` to ``end``."""

    line: int
    start: int
    end: int
    text: bytes


def moved(source: str, modules: Set[str], file: str = "the module") -> str:
    """Return the source of a module as it is inside the package.

    Args:
        source: The module's text.
        modules: The dotted names of all modules of the moved packages.
        file: The name of the module's file, for messages.

    Raises:
        MoveError: A reference cannot be changed.
    """
    lines = source.encode().splitlines(keepends=True)
    try:
        for edit in sorted(_edits(ast.parse(source), lines, modules), reverse=True):
            line = lines[edit.line]
            lines[edit.line] = line[: edit.start] + edit.text + line[edit.end :]
    except MoveError as error:
        raise MoveError(f"{file}:{error}") from None
    return b"".join(lines).decode()


def _edits(tree: ast.Module, lines: list[bytes], modules: Set[str]) -> Iterator[_Edit]:
    skipped = set[ast.AST]()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if _is_moved(module):
                yield _inserted(node, lines, re.compile(rb"from +"))
            case ast.Import():
                yield from _of_import(node, lines)
            case ast.Expr(value=ast.Constant() as docstring):
                skipped.add(docstring)
            case ast.JoinedStr(values=values):
                skipped.update(values)
                if values and _is_path(values[0], modules, ends_with_dot=True):
                    yield _inserted(node, lines, _QUOTES)
            case ast.FormattedValue(value=value):
                _refuse_paths(value, modules)
            case ast.Constant(value=str(text)) if node not in skipped:
                if _CODE.search(text):
                    raise MoveError(f"{node.lineno}: a string with an import: name {PACKAGE} in it")
                if _is_path(node, modules):
                    yield _inserted(node, lines, _QUOTES)
            case _:
                pass


def _of_import(node: ast.Import, lines: list[bytes]) -> Iterator[_Edit]:
    for name in node.names:
        if not _is_moved(name.name):
            continue
        line = name.lineno - 1
        if name.asname is not None:
            yield _Edit(line, name.col_offset, name.col_offset, _PREFIX)
        elif len(node.names) == 1 and "." not in name.name:
            yield _Edit(line, node.col_offset, name.col_offset, f"from {PACKAGE} import ".encode())
        else:
            raise MoveError(f"{name.lineno}: `import {name.name}`: write `from {name.name} import ...`")


def _inserted(node: ast.expr | ast.stmt, lines: list[bytes], before: re.Pattern[bytes]) -> _Edit:
    """Return the edit that inserts the prefix after the pattern, with which the node begins."""
    line = node.lineno - 1
    found = before.match(lines[line], node.col_offset)
    if found is None:
        raise MoveError(f"{node.lineno}: a name of a module is not where it is expected")
    return _Edit(line, found.end(), found.end(), _PREFIX)


def _refuse_paths(value: ast.expr, modules: Set[str]) -> None:
    """Raise MoveError for a path inside an f-string: Python 3.11 does not say where it is."""
    for node in ast.walk(value):
        if _is_path(node, modules):
            raise MoveError(f"{value.lineno}: the path of a module inside an f-string's braces: give it a name")


def _is_moved(module: str) -> bool:
    return module.partition(".")[0] in MOVED


def _is_path(node: ast.AST, modules: Set[str], ends_with_dot: bool = False) -> bool:
    """Whether a string is the path of a module, or of an export as in ``engine.quantize:quantize``.

    A single name, as "web", is not taken for one: it may mean anything.
    """
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    text = node.value
    if ends_with_dot:
        return text.endswith(".") and text[:-1] in modules
    path = text.partition(":")[0]
    return "." in path and path in modules
