"""Distinguishes the echo of an answer in the microphone from a user who speaks over it.

Works chunk by chunk on samples, without a clock. The listener's playback lies on the microphone's own time: a piece
starts when it was announced or when the one before ends, and its echo may come up to half a second later. So it is no
canceller that must learn a path, which would be wrong at every change of the delay: only what is much weaker than all
that was played within reach is taken for echo. A louder echo (no echo cancellation in the client, loudspeaker at the
microphone) passes as the user, and a user who is softer than that is not heard while it plays. In a room whose noise is
that loud the guard lets everything through, and the echo within the noise may start a turn.
"""

from __future__ import annotations

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm, Wave

_REACH_S = 0.64  # the latest echo: 500 ms of network, buffers and device, and a room's tail
_AHEAD_S = 5.0  # the most sound announced ahead of the microphone: 1.5 s of pacing, and a hiccup of the microphone
_LOSS_DB = 12.0  # sound that is weaker than this below the loudest playback within reach counts as its echo


class EchoGuard:
    """Decides whether a chunk of the microphone can contain more than the echo of the playback."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._reach = round(_REACH_S * MIC_RATE_HZ)
        self._ahead = round(_AHEAD_S * MIC_RATE_HZ)
        self._start = 0
        self._played: Wave = np.zeros(0, np.float32)  # from position _start on, the future included
        self._paused_at: int | None = None  # the position where the playback is paused

    def playing(self, pcm: Pcm, position: int) -> None:
        """Note that the listener hears ``pcm`` from ``position`` on, or once the pieces before have ended.

        A microphone that is off stands still while sound goes on. Sound that would then lie too far ahead of it has
        been played: once it is on, the user's voice is measured against the last sound played, not against all of it.
        """
        gap = position - self._start - len(self._played)
        if gap > self._reach:  # all that was played is out of reach
            self._start = position
            self._played = self._played[:0]
            gap = 0
        wave: Wave = np.divide(pcm, 32768, dtype=np.float32)
        self._played = np.concatenate([self._played, np.zeros(max(gap, 0), np.float32), wave])
        self._start -= max(0, self._start + len(self._played) - position - self._ahead)
        self._forget(position - self._reach)

    def _forget(self, before: int) -> None:
        if self._paused_at is not None:
            before = min(before, self._paused_at)  # what was not played yet is still to come
        old = min(max(0, before - self._start), len(self._played))
        self._start = self._start + old
        self._played = self._played[old:]

    def paused(self, position: int) -> None:
        """Note that the listener hears what lies after ``position`` only once the playback goes on."""
        self._paused_at = position

    def resumed(self, position: int) -> None:
        if self._paused_at is None:
            return
        at = max(0, self._paused_at - self._start)
        silence = np.zeros(position - self._paused_at, np.float32)
        if at < len(self._played):
            self._played = np.concatenate([self._played[:at], silence, self._played[at:]])
        self._paused_at = None

    def stopped(self, position: int) -> None:
        self._paused_at = None
        self._played = self._played[: max(0, position - self._start)]

    def lets_through(self, chunk: Wave, start: int) -> bool:
        """Whether the chunk (float32 [chunk], its first sample at position ``start``) can be more than echo."""
        self._forget(start - self._reach)
        until = start + len(chunk)
        if self._paused_at is not None:
            until = min(until, self._paused_at)
        played = self._played[max(0, start - self._reach - self._start) : max(0, until - self._start)]
        if not len(played):
            return True
        blocks = np.pad(played, (0, -len(played) % self._chunk)).reshape(-1, self._chunk)
        loudest = float(np.square(blocks).mean(1).max())
        return float(np.square(chunk).mean()) > loudest * 10 ** (-_LOSS_DB / 10)
