"""The playout of a duplex session: audio is sent when it is made, and the listener must not fall behind the model.

Sans-I/O: the clock is an argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_AHEAD_S = 0.5
"""Seconds of audio that the listener may still have to play when more speech is sent."""

MOST_SILENT_AHEAD_S = 0.16
"""The same for audio between responses: leaving out silence reduces the delay unheard."""


@dataclass(slots=True)
class LivePlayout:
    """Decides which frames are sent. The listener plays each at once, or after those before it."""

    _dry_at_s: float = -math.inf  # when the listener has played everything sent

    def admits(self, seconds: float, speech: bool, now_s: float, ahead_s: float = 0.0) -> bool:
        """Return whether to send the next ``seconds`` of audio, and count it as sent.

        ``ahead_s`` is the transport's ``PlayoutProfile.ahead_s``: it also knows the silence that it puts in for late
        frames.
        """
        if max(ahead_s, self.ahead_s(now_s)) > (MOST_AHEAD_S if speech else MOST_SILENT_AHEAD_S):
            return False
        self._dry_at_s = max(self._dry_at_s, now_s) + seconds
        return True

    def ahead_s(self, now_s: float) -> float:
        """Return the seconds until the listener has played everything sent."""
        return max(0.0, self._dry_at_s - now_s)
