"""When to begin an answer although the user may go on: early in a pause, later for users who often resume."""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.25
"""The weight of the latest speculation: after three wrong ones in a row, answers are begun halfway to the latest
moment."""
RISE, FALL = 0.5, 0.1
"""The weights of the latest answer in how long one takes: quick to rise, slow to fall, so that it is near a p95."""
RESERVE = 1.25
"""An answer is begun that much earlier than it takes: one that comes too late is felt, one too many is not."""


@dataclass(slots=True)
class Speculation:
    """One session's speculation. An answer is begun after ``after_ms`` of silence, or later; 0: never before the turn's
    end.

    However many were forgotten, it is never begun so late that it could not lie ready at the turn's end.
    """

    after_ms: int
    wasted: float = 0.0
    """The share of answers that were begun and forgotten, lately: 0 to 1."""
    takes_ms: float | None = None
    """Milliseconds from an answer's beginning to its first sound, as it was lately; None before the first."""

    def pause_ms(self, silence_ms: int) -> int:
        """The silence after which to begin, where ``silence_ms`` of it end the turn."""
        if not 0 < self.after_ms < silence_ms:
            return silence_ms
        latest_ms = silence_ms - RESERVE * (self.takes_ms or 0.0)
        return round(self.after_ms + self.wasted * max(0.0, latest_ms - self.after_ms))

    def settled(self, right: bool) -> None:
        """Note whether the user had finished."""
        self.wasted += MEMORY * ((not right) - self.wasted)

    def took(self, ms: float) -> None:
        """An answer to a spoken turn had its first sound so long after it was begun."""
        known = ms if self.takes_ms is None else self.takes_ms
        self.takes_ms = known + (RISE if ms > known else FALL) * (ms - known)
