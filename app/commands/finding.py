"""The result of one check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One result, and the next step if there is a problem."""

    level: Level
    subject: str
    text: str
    step: str = ""
