"""Objects on the wire against openai's own types, strictly: each of the very type, and no field that the type lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter

Extensions = Mapping[str, Collection[str]]
"""The fields that a type has on the wire beside its own, by the type's name."""


def strictly(kind: Any, value: Any, extensions: Extensions | None = None) -> Any:
    """``value`` as that type, or as that of an adapter. Raises ValidationError, or AssertionError where it has a field
    that is unknown."""
    adapter: TypeAdapter[Any] = kind if isinstance(kind, TypeAdapter) else _adapter(kind)
    made = adapter.validate_json(orjson.dumps(value), strict=True)
    _check_fields(made, type(made).__name__, extensions or {})
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _check_fields(made: Any, where: str, extensions: Extensions) -> None:
    match made:
        case BaseModel():
            unknown = (made.model_extra or {}).keys() - set(extensions.get(type(made).__name__, ()))
            assert not unknown, (where, type(made).__name__, unknown)
            for name in type(made).model_fields:
                _check_fields(getattr(made, name), f"{where}.{name}", extensions)
        case list():
            for one in made:
                _check_fields(one, where, extensions)
        case _:
            pass
