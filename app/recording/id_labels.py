"""Ids of two runs of one session: each run makes its own random ids, in the same order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

ID = re.compile(r"\b[a-z]+(_[a-z0-9-]+)?_[0-9a-f]{32}\b")
"""An id as ``app.ids`` makes it."""


class IdLabels:
    """The ids of one run, numbered in order of their first appearance, separately for each kind."""

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def label(self, id: str) -> str:
        """Return a label such as ``item#3`` for an id; the same id always gets the same label."""
        if id not in self._labels:
            kind = id.partition("_")[0]
            self._counts[kind] = self._counts.get(kind, 0) + 1
            label = f"{kind}#{self._counts[kind]}"
            self._labels[id] = label
            self._ids[label] = id
        return self._labels[id]

    def labelled(self, event: Any) -> Any:
        """Return an event with labels in place of its ids."""
        return with_ids(event, self.label)

    def translated(self, event: Any, other: IdLabels) -> Any:
        """Return a client event of the run ``other`` with this run's ids. Unknown ids stay unchanged."""
        return with_ids(event, lambda id: self._ids.get(other.known(id), id))

    def known(self, id: str) -> str:
        """Return the label of an id that has appeared, otherwise ""."""
        return self._labels.get(id, "")


def with_ids(value: Any, change: Callable[[str], str], field: str = "") -> Any:
    """Return a JSON value in which each id is changed: a field ``id`` or ``…_id``, or one in a text."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: with_ids(held, change, name) for name, held in fields.items()}
    if isinstance(value, list):
        return [with_ids(one, change) for one in cast("list[Any]", value)]
    if not isinstance(value, str) or field == "event_id":
        return value
    if field == "id" or field.endswith("_id"):
        return change(value)
    return ID.sub(lambda found: change(found[0]), value)
