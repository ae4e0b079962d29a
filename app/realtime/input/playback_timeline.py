"""What the listener hears, on the microphone's own time: positions are counted in the microphone's samples.

A piece starts when it was announced, or when the piece before ends. Network, buffers and devices delay its echo
further.
"""

from __future__ import annotations

import math

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm

_TAPS = 16  # of the filter that interpolates between samples
_AHEAD_S = 5.0  # the most sound announced ahead of the microphone: 1.5 s of pacing, and a hiccup of the microphone


class PlaybackTimeline:
    """The playback from ``reach`` samples before the microphone's position on, the future included."""

    def __init__(self, reach: int) -> None:
        self._reach = reach
        self._ahead = round(_AHEAD_S * MIC_RATE_HZ)
        self._start = 0
        self._played: Pcm = np.zeros(0, np.int16)  # from position _start on
        self._paused_at: int | None = None  # the position where the playback is paused

    def playing(self, pcm: Pcm, position: int) -> None:
        """Add int16 [samples], which the listener hears from ``position`` on, or once the pieces before have ended.

        A microphone that is off stands still while sound goes on. Sound that would then lie too far ahead of it has
        been played already, so everything moves back in time.
        """
        gap = position - self._start - len(self._played)
        if gap > self._reach:  # all that was played is out of reach
            self._start = position
            self._played = self._played[:0]
            gap = 0
        self._played = np.concatenate([self._played, np.zeros(max(gap, 0), np.int16), pcm])
        self._start -= max(0, self._start + len(self._played) - position - self._ahead)
        self.forget(position - self._reach)

    def paused(self, position: int) -> None:
        """Note that the listener hears what lies after ``position`` only once the playback goes on."""
        self._paused_at = position

    def resumed(self, position: int) -> None:
        if self._paused_at is None:
            return
        at = max(0, self._paused_at - self._start)
        silence = np.zeros(position - self._paused_at, np.int16)
        if at < len(self._played):
            self._played = np.concatenate([self._played[:at], silence, self._played[at:]])
        self._paused_at = None

    def stopped(self, position: int) -> None:
        """Note that the listener will not hear what lies after ``position``."""
        self._paused_at = None
        self._played = self._played[: max(0, position - self._start)]

    def forget(self, before: int) -> None:
        """Free what was played before that position."""
        if self._paused_at is not None:
            before = min(before, self._paused_at)  # what was not played yet is still to come
        old = min(max(0, before - self._start), len(self._played))
        self._start = self._start + old
        self._played = self._played[old:]

    def between(self, start: int, end: int) -> Pcm:
        """Return int16 [end - start]: the playback between two positions, silence where there is none."""
        heard = np.zeros(max(0, end - start), np.int16)
        if self._paused_at is not None:
            end = min(end, self._paused_at)
        first = max(start, self._start)
        part = self._played[first - self._start : max(0, end - self._start)]
        heard[first - start : first - start + len(part)] = part
        return heard

    def interpolated(self, start: float, samples: int) -> Pcm:
        """Return int16 [samples]: the playback from a position between two samples on."""
        whole = math.floor(start)
        distances = np.arange(_TAPS // 2, -_TAPS // 2, -1) - 1 + start - whole
        kernel = np.sinc(distances) * np.cos(np.pi * distances / _TAPS) ** 2
        source = self.between(whole - _TAPS // 2 + 1, whole + samples + _TAPS // 2)
        wave = np.convolve(source, kernel[::-1], "valid")
        return np.clip(np.rint(wave), -32768, 32767).astype(np.int16)

    def is_silent(self, start: int, end: int) -> bool:
        """Return whether nothing is played between two positions."""
        if self._paused_at is not None:
            end = min(end, self._paused_at)
        return not self._played[max(0, start - self._start) : max(0, end - self._start)].any()
