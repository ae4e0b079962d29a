"""The version of the wire that this Parley speaks, so that a server and a worker of two versions part with one
sentence.

The version is a digest of the fields of everything that may cross, as the source has them: nobody has to raise it, and
two that differ cannot understand each other.
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
"""A number to raise where a message comes to mean something else and no field changes."""

ANOTHER = "has another version of Parley: install the same one on both sides, and start both again"


def _fields(module: ModuleType) -> list[str]:
    """The classes of a module with their fields, and the words that its literals allow."""
    names = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = [one for one in names.values() if inspect.isclass(one) and one.__module__ == module.__name__]
    classes = [f"{one.__name__}{inspect.get_annotations(one)}" for one in own]
    literals = [f"{name}={get_args(value)}" for name, value in names.items() if get_origin(value) is Literal]
    return [*classes, *literals]


def _digest() -> str:
    lines = sorted(line for module in (chunk, config, core, messages) for line in _fields(module))
    return hashlib.sha256("\n".join([str(MEANING), *lines]).encode()).hexdigest()[:8]


VERSION = _digest()
