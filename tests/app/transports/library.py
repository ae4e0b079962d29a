"""What is compared of a library whose inside is used: its version, the parameters of its functions, its attributes."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, cast


@dataclass(frozen=True)
class Part:
    """A class as it was read: the parameters of its methods but for the first one, ``async`` before those that are.

    ``attributes`` are those that its own methods set, or that it declares.
    """

    kind: type
    methods: Mapping[str, str] = field(default_factory=dict[str, str])
    attributes: frozenset[str] = frozenset()

    @property
    def names(self) -> set[str]:
        """The names that were read, mangled where Python mangles them."""
        return {*self.methods, *(self.mangled(name) for name in self.attributes)}

    def mangled(self, name: str) -> str:
        return f"_{self.kind.__name__}{name}" if name.startswith("__") else name

    def changes(self) -> list[str]:
        """What is another one now: each with what it was read as."""
        found = [
            f"{self.kind.__name__}.{name}({was}) is now ({now})"
            for name, was in self.methods.items()
            if (now := parameters(self.kind, name)) != was
        ]
        own = _own(self.kind)
        return found + [f"{self.kind.__name__}.{name} is gone" for name in sorted(self.attributes - own)]


def parameters(owner: Any, name: str) -> str | None:
    """The parameters of a method, or of a module's function; None where there is none of that name.

    Of a class it is what its source says: importing ``sse_starlette`` puts a method of its own into uvicorn's class.
    """
    if isinstance(owner, type) and (written := _written(owner, name)):
        arguments = written.args
        every = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
        names = [one.arg for one in every if one][1:]
        return " ".join((["async"] if isinstance(written, ast.AsyncFunctionDef) else []) + names)
    function: Callable[..., Any] | None = getattr(owner, name, None)
    if not callable(function):
        return None
    names = list(inspect.signature(function).parameters)[isinstance(owner, type) :]
    return " ".join((["async"] if inspect.iscoroutinefunction(function) else []) + names)


def _written(owner: type, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition of a method in the source of its class, or of the nearest base that has one."""
    for kind in owner.__mro__[:-1]:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        except (OSError, TypeError):  # written in C
            continue
        for node in cast(ast.ClassDef, tree.body[0]).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return node
    return None


def check_version(library: str, *read: str) -> None:
    """Fail where another version is installed than was read."""
    installed = version(library)
    assert installed in read, (
        f"{library} {installed} is installed, and {' or '.join(read)} was read. Read in {installed} what these "
        f"tables name and what calls it; run tests/app/transports, tests/web and tests/attacks; "
        f"set READ in {library}_compat.py."
    )


def check_parts(*parts: Part) -> None:
    """Fail where a part is another one than was read."""
    changes = [change for part in parts for change in part.changes()]
    assert not changes, f"these parts have changed: see who uses them in app/transports: {'; '.join(changes)}"


def _own(kind: type) -> set[str]:
    """The attributes that a class and its bases set on ``self`` or declare."""
    found = set[str]()
    for one in kind.__mro__[:-1]:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError):  # written in C
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name):
                    found.add(name)
                case _:
                    pass
    return found
