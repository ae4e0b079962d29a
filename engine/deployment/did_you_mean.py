"""The hint in error messages about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 12
"""Maximum number of names that a hint lists."""


def nearest(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint for an unknown name, for use in parentheses.

    Args:
        name: The unknown name.
        known: The known names.
        otherwise: The hint if no known name is similar. None: list the known names.
    """
    names = list(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {close[0]!r}?"
    if otherwise is not None:
        return otherwise
    return f"known: {', '.join(names[:SHOWN])}" if names else "there are none"
