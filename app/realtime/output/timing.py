"""The times of what happened in one answer, and what they come to. Monotonic seconds; knows no clock."""

from __future__ import annotations

from dataclasses import dataclass

from engine import SPEAKER_RATE_HZ


@dataclass(slots=True)
class Timing:
    """The moments of one answer, in monotonic seconds; None before they came."""

    asked_s: float
    first_sent_s: float | None = None
    first_made_s: float | None = None
    last_made_s: float | None = None
    first_made_samples: int = 0
    turn_ms: float | None = None
    """The silence between the user's last word and the end of their turn; None where they did not speak."""
    over_probability: float | None = None
    """The end-of-turn model's probability that the turn was over; None where no such model ended it."""

    def ttfa_s(self) -> float | None:
        return None if self.first_sent_s is None else self.first_sent_s - self.asked_s

    def ahead_ms(self, speculative_since_s: float | None) -> float:
        """Return how long before the turn was over its answer was begun."""
        return 0.0 if speculative_since_s is None else (self.asked_s - speculative_since_s) * 1000

    def rtf(self, samples: int) -> float | None:
        """Time to make what followed the first chunk over its length; None if nothing did."""
        if self.first_made_s is None or self.last_made_s is None or samples <= self.first_made_samples:
            return None
        return (self.last_made_s - self.first_made_s) * SPEAKER_RATE_HZ / (samples - self.first_made_samples)
