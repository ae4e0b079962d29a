"""The way to what another library keeps to itself, through the ``…_compat.py`` of that library and nowhere else."""

from __future__ import annotations

from typing import Any


class Inside:
    """The private parts of an object, as far as they are listed: ``inside.name`` is its ``_name``, or ``_Class__name``.

    Raises RuntimeError where there is no such part, also where one is to be replaced: the library is another one.
    """

    def __init__(self, of: Any, names: frozenset[str]) -> None:
        vars(self).update(of=of, names={name.rpartition("__")[2].lstrip("_"): name for name in names})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, self._found(name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.of, self._found(name), value)

    def _found(self, name: str) -> str:
        if not hasattr(self.of, self.names[name]):
            kind = f"{type(self.of).__module__}.{type(self.of).__name__}"
            raise RuntimeError(f"{kind} has no {self.names[name]}: install the version that pyproject.toml asks for.")
        return self.names[name]
