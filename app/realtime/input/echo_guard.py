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
from engine.core import MIC_RATE_HZ, Pcm, Wave

_REACH_S = 0.64  # the latest echo: 500 ms of network, buffers and device, and a room's tail
_LOSS_DB = 12.0  # sound that is weaker than this below the loudest echo within reach counts as its echo


class EchoGuard:
    """Decides whether a chunk of the microphone can contain more than the echo of the playback."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._reach = round(_REACH_S * MIC_RATE_HZ)
        self.timeline = PlaybackTimeline(self._reach)

    def playing(self, pcm: Pcm, position: int) -> None:
        """Add playback that is heard from ``position`` on, or after the playback before."""
        self.timeline.playing(pcm, position)

    def lets_through(self, chunk: Wave, start: int, gain_db: float = 0.0) -> bool:
        """Return whether the chunk (float32 [chunk], its first sample at position ``start``) can be more than echo.

        ``gain_db``: the level of the loudest possible echo relative to the playback.
        """
        self.timeline.forget(start - self._reach)
        if self.timeline.is_silent(start - self._reach, start + len(chunk)):
            return True
        played = self.timeline.between(start - self._reach, start + len(chunk))
        blocks = np.divide(played[: len(played) // self._chunk * self._chunk], 32768, dtype=np.float32)
        loudest = float(np.square(blocks.reshape(-1, self._chunk)).mean(1).max())
        return float(np.square(chunk).mean()) > loudest * 10 ** ((gain_db - _LOSS_DB) / 10)
