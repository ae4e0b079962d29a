"""Objects on the wire against openai's own types, strictly: each of the very type, and no field that the type lacks."""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter


def strictly(kind: Any, value: Any) -> Any:
    """``value`` as that type. Raises ValidationError, or AssertionError where it has a field that is unknown."""
    made = _adapter(kind).validate_json(orjson.dumps(value), strict=True)
    _check_fields(made, type(made).__name__)
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _check_fields(made: Any, where: str) -> None:
    match made:
        case BaseModel():
            assert not made.model_extra, (where, made.model_extra)
            for name in type(made).model_fields:
                _check_fields(getattr(made, name), f"{where}.{name}")
        case list():
            for one in made:
                _check_fields(one, where)
        case _:
            pass
