"""A listener without a prebuffer: he plays from the first sample on, and what comes too late is a gap."""

from __future__ import annotations

from dataclasses import dataclass

from engine import SPEAKER_RATE_HZ


@dataclass(slots=True)
class Player:
    """``hear`` is told of every piece as it arrives (monotonic seconds)."""

    ends_s: float | None = None
    """When what has arrived will have been played."""
    gaps: int = 0
    longest_s: float = 0.0

    def hear(self, samples: int, now_s: float) -> None:
        if self.ends_s is not None and now_s > self.ends_s:
            self.gaps += 1
            self.longest_s = max(self.longest_s, now_s - self.ends_s)
        self.ends_s = max(now_s, self.ends_s or now_s) + samples / SPEAKER_RATE_HZ
