"""A deployment as plain data, for YAML and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast


def plain(value: Any) -> Any:
    """Return a configuration object as dictionaries and lists, with everything that differs from the defaults."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = ((one, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {one.name.rstrip("_"): plain(held) for one, held in named if held != _default(one)}
    if isinstance(value, tuple):
        return [plain(one) for one in cast("tuple[Any, ...]", value)]
    return dict(cast("dict[str, Any]", value)) if isinstance(value, Mapping) else value


def _default(one: dataclasses.Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not dataclasses.MISSING else one.default
