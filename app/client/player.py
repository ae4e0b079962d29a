"""A simulated player, which starts at the first packet without a buffer and may run dry.

Sans-I/O: arrival times are arguments. The definitions match the README's figures: the first sound is the first 20 ms
with an RMS above −45 dBFS. An underrun is a pause in which the player has nothing to play, unless only silence follows:
after a call's answer, silent packets arrive that nobody misses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine import SPEAKER_RATE_HZ
from engine.core import Wave

WINDOW_SAMPLES = SPEAKER_RATE_HZ // 50
AUDIBLE_RMS = 10 ** (-45 / 20)
SILENT = 10 ** (-66 / 20)
"""Samples up to this level are digital silence after a codec."""

TOLERANCE_S = 0.001
"""Shorter gaps are clock jitter: no listener hears a millisecond."""


@dataclass(slots=True)
class Player:
    """The audio of one answer as its listener hears it. Pass the packets to ``receive`` in order."""

    first_s: float | None = None
    """Arrival time of the first packet with samples."""
    samples: int = 0
    # first sample after the gap, start, end
    _gaps: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    _plays_until_s: float = 0.0
    _starts: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    _waves: list[Wave] = field(default_factory=list[Wave])
    _paused_s: float | None = None

    def receive(self, at_s: float, wave: Wave) -> None:
        """Add float32 [samples] at SPEAKER_RATE_HZ that arrived at ``at_s``."""
        if not len(wave):
            return
        if self.first_s is None:
            self.first_s = self._plays_until_s = at_s
        elif self._paused_s is None and at_s - self._plays_until_s > TOLERANCE_S:
            self._gaps.append((self.samples, self._plays_until_s, at_s))
        start_s = max(at_s, self._plays_until_s)
        self._starts.append((self.samples, start_s))
        self._plays_until_s = start_s + len(wave) / SPEAKER_RATE_HZ
        self.samples += len(wave)
        self._waves.append(wave)

    def pause(self, at_s: float) -> None:
        """Stop playing, and keep the packets that were not played yet."""
        if self._paused_s is None:
            self._paused_s = at_s

    def resume(self, at_s: float) -> None:
        """Go on where the playback has paused."""
        if self._paused_s is None:
            return
        played = self.played_samples(at_s)
        self._paused_s = None
        if played < self.samples:
            self._starts = [one for one in self._starts if one[0] < played]
            self._starts.append((played, at_s))
            self._plays_until_s = at_s + (self.samples - played) / SPEAKER_RATE_HZ

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """Return the start and end of each underrun."""
        if not self._gaps:
            return []
        loud = np.flatnonzero(np.abs(self.wave) > SILENT)
        last = int(loud[-1]) if len(loud) else -1
        return [(from_s, until_s) for sample, from_s, until_s in self._gaps if sample <= last]

    @property
    def underruns(self) -> int:
        return len(self.gaps)

    @property
    def dry_s(self) -> float:
        return sum(until_s - from_s for from_s, until_s in self.gaps)

    @property
    def longest_dry_s(self) -> float:
        return max((until_s - from_s for from_s, until_s in self.gaps), default=0.0)

    @property
    def ends_s(self) -> float:
        """Return the monotonic time at which all received audio will have been played."""
        return self._plays_until_s

    @property
    def seconds(self) -> float:
        return self.samples / SPEAKER_RATE_HZ

    def played_samples(self, now_s: float) -> int:
        """Return how many samples have been played at ``now_s``."""
        if not self._starts:
            return 0
        if self._paused_s is not None:
            now_s = min(now_s, self._paused_s)
        first, start_s = next((one for one in reversed(self._starts) if one[1] <= now_s), self._starts[0])
        following = next((one for one in self._starts if one[0] > first), (self.samples, 0.0))
        return min(following[0], first + max(0, round((now_s - start_s) * SPEAKER_RATE_HZ)))

    @property
    def wave(self) -> Wave:
        """Return all received audio as float32 [samples]."""
        return np.concatenate(self._waves) if self._waves else np.zeros(0, np.float32)

    @property
    def audible_s(self) -> float | None:
        """Return when the listener hears the first sound; None if there was only silence."""
        wave = self.wave
        windows = wave[: len(wave) // WINDOW_SAMPLES * WINDOW_SAMPLES].reshape(-1, WINDOW_SAMPLES)
        loud = np.flatnonzero(np.sqrt((windows.astype(np.float64) ** 2).mean(axis=1)) > AUDIBLE_RMS)
        return self._played_s(int(loud[0]) * WINDOW_SAMPLES) if len(loud) else None

    def _played_s(self, sample: int) -> float:
        first, start_s = next(entry for entry in reversed(self._starts) if entry[0] <= sample)
        return start_s + (sample - first) / SPEAKER_RATE_HZ
