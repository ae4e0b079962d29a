"""Accumulates the steps of a request into one struct: some fields are concatenated, others replaced by the latest
value.

The annotations of the struct say which fields are concatenated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.errors import StageFailed

S = TypeVar("S", bound=msgspec.Struct)

CONCAT = "concat"
"""Marks a field whose arrays are concatenated along their first dimension: ``Annotated[NDArray[np.int64], CONCAT]``."""

Ids = Annotated[NDArray[np.int64], CONCAT]
"""Token ids, or frames of codes, that are appended to those of the step before."""


class Accumulator(Generic[S]):
    """Accumulates the steps of one request, however they are cut into pieces.

    Every field of ``struct`` is optional; None means no value. Whether a field is concatenated is declared, and never
    inferred from its number of dimensions.
    """

    def __init__(self, struct: type[S]) -> None:
        self._struct = struct
        self._joined = frozenset(_joined(struct))
        self._pieces: dict[str, list[Any]] = {}

    def add(self, step: S) -> None:
        """Add the next step. Raises StageFailed if an array does not fit the earlier ones."""
        for name in step.__struct_fields__:
            if (value := getattr(step, name)) is None:
                continue
            before = self._pieces.setdefault(name, [])
            if name not in self._joined:
                before.clear()
            elif before and value.shape[1:] != before[0].shape[1:]:
                shapes = f"{list(before[0].shape)} and {list(value.shape)}"
                raise StageFailed(
                    f"{self._struct.__struct_config__.tag}: {name} has shapes that cannot be joined: {shapes}"
                )
            before.append(value)

    @property
    def whole(self) -> S:
        """Return all steps as one struct."""
        joined = {
            name: np.concatenate(pieces) if name in self._joined else pieces[0] for name, pieces in self._pieces.items()
        }
        return self._struct(**joined)


def _joined(struct: type[msgspec.Struct]) -> Iterator[str]:
    for name, annotation in get_type_hints(struct, include_extras=True).items():
        if any(CONCAT in getattr(one, "__metadata__", ()) for one in (annotation, *get_args(annotation))):
            yield name
