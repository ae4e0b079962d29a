"""A part of a JSON schema with its JSON path, and checked access to its keywords."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, cast

from engine.errors import SchemaError

_NAME = re.compile(r"[$A-Za-z_]\w{0,39}", re.ASCII)
_LONGEST = 200


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """A value within a schema. All methods but ``at`` and ``error`` require an object, and raise SchemaError."""

    value: Any
    parent: Located | None = None
    key: str | int = ""

    def at(self, key: str | int) -> Located:
        """Return a member or an item."""
        return Located(self.value[key], self, key)

    @property
    def path(self) -> str:
        """The JSON path, without its beginning if it is long."""
        steps: list[str] = []
        part = self
        while part.parent is not None and sum(map(len, steps)) < _LONGEST:
            steps.append(_step(part.key))
            part = part.parent
        return ("$" if part.parent is None else "…") + "".join(reversed(steps))

    def error(self, why: str, key: str = "") -> SchemaError:
        """Return the error for this value, or for its member. ``why`` is the rest of the sentence."""
        return SchemaError(f"JSON schema, {self.path}{_step(key) if key else ''}: {why}.")

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def names(self) -> list[str]:
        """Return the names of the members."""
        return list(self.value)

    def object(self, key: str) -> Located:
        """Return a member that is an object; an empty one if it is absent."""
        if key not in self:
            return Located({}, self, key)
        if not isinstance(self.value[key], dict):
            raise self.error("must be an object", key)
        return self.at(key)

    def items(self, key: str) -> list[Located]:
        """Return the items of a member that is a list; none if it is absent."""
        if key not in self:
            return []
        if not isinstance(self.value[key], list):
            raise self.error("must be a list", key)
        whole = self.at(key)
        return [whole.at(n) for n in range(len(cast("list[Any]", whole.value)))]

    def texts(self, key: str) -> list[str]:
        found = [one.value for one in self.items(key)]
        if not all(isinstance(one, str) for one in found):
            raise self.error("must be a list of strings", key)
        return found

    def text(self, key: str) -> str | None:
        value = self.value.get(key)
        if key in self and not isinstance(value, str):
            raise self.error("must be a string", key)
        return value

    def number(self, key: str) -> int | float | None:
        value = self.value.get(key)
        if key in self and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.error("must be a number", key)
        return value

    def count(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and (value < 0 or value != int(value)):
            raise self.error("must be an integer of at least 0", key)
        return None if value is None else int(value)

    def limits(self, least: str, most: str) -> tuple[int, int | None]:
        """Return the two counts, 0 and None if they are absent."""
        low, high = self.count(least) or 0, self.count(most)
        if high is not None and high < low:
            raise self.error(f"must not be less than {least}", most)
        return low, high

    def refuse(self, *keys: str) -> None:
        """Raise SchemaError if one of these keywords is present."""
        for key in keys:
            if key in self:
                raise self.error("is not supported. Remove it, and check the answer yourself", key)


def _step(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _NAME.fullmatch(key) else f"[{key[:40]!r}]"
