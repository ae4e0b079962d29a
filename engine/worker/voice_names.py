"""The names of voices, as requests and configurations ask for them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint for a name that there is not."""
    close = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f" (there are {', '.join(names[:12])})" if names else ""
