"""The hint of every message about a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 12
"""Names that are listed at most."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """The known name that was meant, to stand in parentheses; where none is near, ``otherwise``, or all of them."""
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {close[0]!r}?"
    if otherwise is not None:
        return otherwise
    return f"known: {', '.join(names[:SHOWN])}" if names else "there are none"
