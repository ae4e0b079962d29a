"""A listener's player as arithmetic: it starts at the first packet, with no prebuffer, and runs dry when it must.

Sans-I/O: arrival times are arguments. The definitions are those of the README's figures: first sound is the first
20 ms whose RMS is above −45 dBFS, and a pause in which the player has nothing left to play is an underrun, unless
nothing but silence comes behind it: a call's answer is followed by silent packets, which nobody misses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine import SPEAKER_RATE_HZ
from engine.core import Wave

WINDOW_SAMPLES = SPEAKER_RATE_HZ // 50
AUDIBLE_RMS = 10 ** (-45 / 20)
SILENT = 10 ** (-66 / 20)
"""A sample that is not louder than this is digital silence, as a codec gives it back."""

TOLERANCE_S = 0.001
"""A gap shorter than this is the clock's, not the stream's: no listener hears a millisecond."""


@dataclass(slots=True)
class Player:
    """The sound of one answer as its listener hears it. ``receive`` its packets in order."""

    first_s: float | None = None
    """The time at which the first packet with samples came."""
    samples: int = 0
    _gaps: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])  # before a sample
    _plays_until_s: float = 0.0
    _starts: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    _waves: list[Wave] = field(default_factory=list[Wave])

    def receive(self, at_s: float, wave: Wave) -> None:
        """Float32 [samples] at SPEAKER_RATE_HZ that arrived at ``at_s``."""
        if not len(wave):
            return
        if self.first_s is None:
            self.first_s = self._plays_until_s = at_s
        elif at_s - self._plays_until_s > TOLERANCE_S:
            self._gaps.append((self.samples, self._plays_until_s, at_s))
        start_s = max(at_s, self._plays_until_s)
        self._starts.append((self.samples, start_s))
        self._plays_until_s = start_s + len(wave) / SPEAKER_RATE_HZ
        self.samples += len(wave)
        self._waves.append(wave)

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """The underruns: from when until when there was nothing left to play."""
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
        """Return when the listener has heard all that came."""
        return self._plays_until_s

    @property
    def seconds(self) -> float:
        return self.samples / SPEAKER_RATE_HZ

    def played_samples(self, now_s: float) -> int:
        """Return how much of it has been heard by ``now_s``."""
        if not self._starts:
            return 0
        first, start_s = next((one for one in reversed(self._starts) if one[1] <= now_s), self._starts[0])
        following = next((one for one in self._starts if one[0] > first), (self.samples, 0.0))
        return min(following[0], first + max(0, round((now_s - start_s) * SPEAKER_RATE_HZ)))

    @property
    def wave(self) -> Wave:
        """All that came, as float32 [samples]."""
        return np.concatenate(self._waves) if self._waves else np.zeros(0, np.float32)

    @property
    def audible_s(self) -> float | None:
        """Return when the listener hears the first sound; None while there was none: silence is not an answer."""
        wave = self.wave
        windows = wave[: len(wave) // WINDOW_SAMPLES * WINDOW_SAMPLES].reshape(-1, WINDOW_SAMPLES)
        loud = np.flatnonzero(np.sqrt((windows.astype(np.float64) ** 2).mean(axis=1)) > AUDIBLE_RMS)
        return self._played_s(int(loud[0]) * WINDOW_SAMPLES) if len(loud) else None

    def _played_s(self, sample: int) -> float:
        first, start_s = next(entry for entry in reversed(self._starts) if entry[0] <= sample)
        return start_s + (sample - first) / SPEAKER_RATE_HZ
