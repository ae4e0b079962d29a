"""The way to what another library keeps to itself, through the ``…_compat.py`` of that library and nowhere else."""

from __future__ import annotations

from functools import cache
from typing import Any


class Inside:
    """The private parts of an object, as far as they are listed: ``inside.name`` is its ``_name``, or ``_Class__name``.

    Raises RuntimeError where there is no such part, also where one is to be replaced: the library is another one.
    """

    def __init__(self, of: Any, names: frozenset[str]) -> None:
        vars(self).update(of=of, names=_by_public_name(names))

    def __getattr__(self, name: str) -> Any:  # for each datagram of a call, some times
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
    return RuntimeError(f"{kind} has no {private}: install the version that pyproject.toml asks for.")
