"""The version of the protocol between server and worker, which the handshake compares.

It is a digest of the fields of every message, computed from the source, so nobody has to raise it. Two versions with
different fields could not understand each other.
"""

from __future__ import annotations

import hashlib
import inspect
from types import ModuleType
from typing import Literal, get_args, get_origin

from engine import chunk, core
from engine.deployment import config
from engine.ipc import messages

MEANING = 1
"""Raise this number if a message gets another meaning while its fields stay the same."""

ANOTHER = "has another version of Parley: install the same one on both sides, and start both again"


def _fields(module: ModuleType) -> list[str]:
    """Return a module's own classes with their fields, and the values of its Literal types."""
    names = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = [one for one in names.values() if inspect.isclass(one) and one.__module__ == module.__name__]
    classes = [f"{one.__name__}{inspect.get_annotations(one)}" for one in own]
    literals = [f"{name}={get_args(value)}" for name, value in names.items() if get_origin(value) is Literal]
    return [*classes, *literals]


def _digest() -> str:
    lines = sorted(line for module in (chunk, config, core, messages) for line in _fields(module))
    return hashlib.sha256("\n".join([str(MEANING), *lines]).encode()).hexdigest()[:8]


VERSION = _digest()
