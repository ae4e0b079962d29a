"""Distinguishes the echo of an answer in the microphone from a user who speaks over it.

Works chunk by chunk on samples, without a clock. An echo may come up to half a second after its playback. Only what is
much weaker than the loudest echo of all that was played within reach is taken for echo. A louder echo (a loudspeaker at
the microphone of a client without echo cancellation) passes as the user until it is cancelled (``echo_cancellation``).
A user who is softer is not heard while it plays. In a room whose noise is that loud the guard lets everything through,
and the echo within the noise may start a turn.
"""

from __future__ import annotations

import numpy as np

from app.realtime.input.playback_timeline import PlaybackTimeline
from engine.core import MIC_RATE_HZ, Wave

_REACH = MIC_RATE_HZ * 64 // 100  # samples to the latest echo: 500 ms of network and device, and a room's tail
_LOSS_DB = 12.0  # sound that is weaker than this below the loudest echo within reach counts as its echo


class EchoGuard:
    """Decides whether a chunk of the microphone can contain more than the echo of the playback."""

    def __init__(self, playback: PlaybackTimeline, start: int = 0) -> None:
        """``start``: the position in ``playback`` of the first sample that is judged."""
        self._playback = playback
        self._start = start

    def lets_through(self, chunk: Wave, start: int, gain_db: float = 0.0) -> bool:
        """Return whether the chunk (float32 [samples], the first one is sample ``start``) can be more than echo.

        ``gain_db``: the level of the loudest possible echo relative to the playback.
        """
        end = self._start + start + len(chunk)
        played = self._playback.between(end - len(chunk) - _REACH, end)
        if not played.any():
            return True
        blocks = np.divide(played[: len(played) // len(chunk) * len(chunk)], 32768, dtype=np.float32)
        loudest = float(np.square(blocks.reshape(-1, len(chunk))).mean(1).max())
        return float(np.square(chunk).mean()) > loudest * 10 ** ((gain_db - _LOSS_DB) / 10)
