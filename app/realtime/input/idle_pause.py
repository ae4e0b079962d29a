"""The pause of a session in which nothing happens: it begins after a silence, and speech or an answer ends it.

Sans-I/O: positions count the microphone's samples. While paused, only the voice activity detector works.
"""

from __future__ import annotations

from app.realtime.ports import IdlePolicy
from engine import MIC_RATE_HZ


class IdlePause:
    """Decides when a session pauses. Without a policy, it never does."""

    def __init__(self, policy: IdlePolicy | None) -> None:
        self._policy = policy
        self._quiet_from: int | None = 0  # None while a response is under way
        self._paused = False

    @property
    def wake_threshold(self) -> float | None:
        """The speech probability that ends the pause; None while the session is not paused."""
        return self._policy.wake_threshold if self._paused and self._policy is not None else None

    def falls_asleep(self, position: int, speaks: bool) -> bool:
        """Return whether the pause begins at this position. ``speaks`` tells whether the user does."""
        if self._policy is None or self._paused or self._quiet_from is None:
            return False
        if speaks:
            self._quiet_from = position
        self._paused = position - self._quiet_from >= self._policy.timeout_s * MIC_RATE_HZ
        return self._paused

    def wakes(self) -> bool:
        """End the pause. Returns whether there was one."""
        was_paused = self._paused
        self._paused = False
        return was_paused

    def response_started(self) -> None:
        self._quiet_from = None

    def response_ended(self, heard_at: int) -> None:
        """Record the position at which the listener has heard a response."""
        self._quiet_from = heard_at
