"""What the prompt of an answer was made of, to see whether it still holds. Knows no prompt."""

from __future__ import annotations

from typing import NamedTuple

from app.realtime.items import Picture
from app.realtime.options import Options


class Basis(NamedTuple):
    """Two that are equal make the same prompt."""

    revision: int
    """Of the conversation."""
    options: Options
    seen: tuple[Picture, ...]
    """In the turn that is being spoken."""
