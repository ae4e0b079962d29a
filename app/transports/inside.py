"""Access to private attributes of libraries, used only in their ``…_compat.py`` modules."""

from __future__ import annotations

from functools import cache
from typing import Any


class Inside:
    """The listed private attributes of an object: ``inside.name`` is its ``_name`` or ``_Class__name``.

    Raises RuntimeError if an attribute does not exist, also on assignment, because the library's version differs.
    """

    def __init__(self, of: Any, names: frozenset[str]) -> None:
        vars(self).update(of=of, names=_by_public_name(names))

    def __getattr__(self, name: str) -> Any:  # called several times for each datagram of a call
        private = self.names[name]
        try:
            return getattr(self.of, private)
        except AttributeError:
            raise _gone(self.of, private) from None

    def __setattr__(self, name: str, value: Any) -> None:
        private = self.names[name]
        if not hasattr(self.of, private):
            raise _gone(self.of, private)
        setattr(self.of, private, value)


@cache
def _by_public_name(names: frozenset[str]) -> dict[str, str]:
    return {name.rpartition("__")[2].lstrip("_"): name for name in names}


def _gone(of: Any, private: str) -> RuntimeError:
    kind = f"{type(of).__module__}.{type(of).__name__}"
    return RuntimeError(f"{kind} has no {private}: install the version required by pyproject.toml.")
