"""When to begin an answer although the user may go on: soon, unless he mostly did. Knows no turn and no clock."""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.25
"""What the latest guess counts for: after three wrong ones in a row, answers are begun halfway to the turn's end."""


@dataclass(slots=True)
class Guesses:
    """One session's. An answer is begun after ``after_ms`` of silence, or later; 0: never before the turn's end."""

    after_ms: int
    wasted: float = 0.0
    """The share of answers that were begun and forgotten, lately: 0 to 1."""

    def pause_ms(self, silence_ms: int) -> int:
        """The silence after which to begin, where ``silence_ms`` of it end the turn."""
        if not 0 < self.after_ms < silence_ms:
            return silence_ms
        return round(self.after_ms + self.wasted * (silence_ms - self.after_ms))

    def judged(self, right: bool) -> None:
        """The user had finished, or he had not."""
        self.wasted += MEMORY * ((not right) - self.wasted)
