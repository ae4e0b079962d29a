"""Timestamps of one answer, and the figures computed from them. Monotonic seconds; knows no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine import SPEAKER_RATE_HZ


@dataclass(slots=True)
class Timing:
    """The timestamps of one answer in monotonic seconds; None until reached."""

    asked_s: float
    first_sent_s: float | None = None
    first_made_s: float | None = None
    last_made_s: float | None = None
    first_made_samples: int = 0
    turn_ms: float | None = None
    """Silence in ms between the user's last word and the end of the turn; None if the user did not speak."""
    over_probability: float | None = None
    """The end-of-turn model's probability that the turn was over; None if no such model ended it."""
    turn_counts: Mapping[str, float] | None = None
    """How the session's turns had ended when this one was over (``TurnOutcomes``); None if the client ended it."""

    def ttfa_s(self) -> float | None:
        return None if self.first_sent_s is None else self.first_sent_s - self.asked_s

    def ahead_ms(self, speculative_since_s: float | None) -> float:
        """Return how long before the end of the turn the answer was started."""
        return 0.0 if speculative_since_s is None else (self.asked_s - speculative_since_s) * 1000

    def rtf(self, samples: int) -> float | None:
        """Return the real-time factor after the first chunk; None if nothing followed it."""
        if self.first_made_s is None or self.last_made_s is None or samples <= self.first_made_samples:
            return None
        return (self.last_made_s - self.first_made_s) * SPEAKER_RATE_HZ / (samples - self.first_made_samples)
