"""The way to what a library keeps to itself, and that there is no other one in the app."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.transports.inside import Inside

APP = Path(__file__).resolve().parents[3] / "app"
OURS = {
    ("app/access/api_keys.py", "_file"): "a Keys, in a method of Keys",
    ("app/realtime/output/preparation.py", "_replace"): "a named tuple's own method",
    ("app/pulling/packages.py", "_replace"): "a named tuple's own method",
    ("app/client/channel.py", "_replace"): "a named tuple's own method",
    ("app/server.py", "_exit"): "the system's own call",
    ("app/recording/id_labels.py", "_id"): "the end of a field's name",
    ("app/recording/replay.py", "_id"): "the end of a field's name",
}
"""Names with an underscore that are no other library's inside, and why."""
PYAV = {("app/transports/webrtc/opus.py", "_send_frame_and_recv"): "PyAV's, checked in test_opus"}


class Library:
    def __init__(self) -> None:
        self._plain, self.__mangled = 1, 2

    @property
    def mangled(self) -> int:
        return self.__mangled


NAMES = frozenset({"_plain", "_Library__mangled", "_gone"})


def test_private_parts_are_read_and_replaced_by_their_names() -> None:
    one = Library()
    inside = Inside(one, NAMES)
    assert (inside.plain, inside.mangled) == (1, 2)
    inside.plain, inside.mangled = 3, 4
    assert (inside.plain, one.mangled) == (3, 4)


def test_a_part_that_is_gone_is_neither_read_nor_replaced() -> None:
    inside = Inside(Library(), NAMES)
    with pytest.raises(RuntimeError, match=r"Library has no _gone: install the version required by pyproject\.toml"):
        _ = inside.gone
    with pytest.raises(RuntimeError, match="_gone"):
        inside.gone = 1


def test_a_part_that_is_not_listed_is_not_reached() -> None:
    with pytest.raises(KeyError):
        _ = Inside(Library(), frozenset()).plain


def foreign(source: str) -> Iterator[str]:
    """The private names of other objects than ``self`` and its base class that a file uses, or writes as text."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) if _is_private(name):
                yield name
            case _:
                pass


def _is_private(name: str) -> bool:
    return name.isidentifier() and name.startswith("_") and not name.startswith("__") and len(name) > 2


def test_no_other_file_of_the_app_touches_a_library_s_inside() -> None:
    found = {
        (path.relative_to(APP.parent).as_posix(), name)
        for path in APP.rglob("*.py")
        if not path.name.endswith("_compat.py")
        for name in foreign(path.read_text(encoding="utf-8"))
    }
    assert found == {*OURS, *PYAV}


def test_control_one_that_does_is_seen() -> None:
    assert list(foreign("receiver._queue.qsize()")) == ["_queue"]
    assert list(foreign('setattr(receiver, "_Receiver__buffer", self)')) == ["_Receiver__buffer"]
    assert not list(foreign("self._queue"))
