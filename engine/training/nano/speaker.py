"""Measures speaker similarity: pitch and average spectrum of each voice, compared with those of every teacher.

    python -m engine.training.nano.speaker --work DIR [--weights FOLDER] [--count 20]        needs the teachers

Prints for each voice its median F0 and its distance from each teacher: of the average log-mel spectrum of sounding
frames (without its level) in dB, and of F0 in semitones. The nearest teacher should be the voice's own. These two
figures distinguish three voices; they cannot distinguish people in general.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine.training.nano import buzz, meter
from engine.training.nano.features import HOP, log_mel
from engine.training.nano.periodic import RATE_HZ, band, voiced
from engine.worker.models.nano.voice import VOICES

SOUNDING = 3.0  # a frame sounds if its loudest band is at most this many nepers below the wave's loudest
DB = 20 / np.log(10)
Wave = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Speaker:
    """f0_hz: the median; spectrum: average log-mel in dB without its mean, [80]."""

    f0_hz: float
    spectrum: NDArray[np.float64]

    @classmethod
    def of(cls, waves: Sequence[Wave]) -> Speaker:
        lags = np.concatenate([voiced(band(wave, 0, 3000, 1))[1] for wave in waves])
        mel = np.concatenate([sounding(wave) for wave in waves]).mean(0) * DB
        return cls(float(RATE_HZ / np.median(lags)), mel - mel.mean())

    def apart(self, other: Speaker) -> tuple[float, float]:
        """Return the distance in (dB, semitones)."""
        semitones = 12 * abs(np.log2(self.f0_hz / other.f0_hz))
        return float(np.sqrt(((self.spectrum - other.spectrum) ** 2).mean())), float(semitones)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--count", type=int, default=20)
    args = parser.parse_args()
    texts = buzz.texts()[: args.count]
    teachers = {name: Speaker.of(meter.teacher_waves(args.work, texts, name)) for name in VOICES}
    for name in VOICES:
        made = Speaker.of(meter.nano_waves(args.weights, texts, name))
        apart = {other: made.apart(teacher) for other, teacher in teachers.items()}
        beside = ", ".join(f"{other} {db:.1f} dB {semitones:.1f} st" for other, (db, semitones) in apart.items())
        print(f"{name}: {made.f0_hz:.0f} Hz (its teacher {teachers[name].f0_hz:.0f}); from {beside}")
        print(f"{name}: nearest by spectrum is {min(apart, key=lambda other: apart[other][0])}", end="")
        print(f", by pitch {min(apart, key=lambda other: apart[other][1])}", flush=True)


def sounding(wave: Wave) -> NDArray[np.float32]:
    """Return the log-mel of the sounding frames, [n, 80]."""
    whole = np.ascontiguousarray(wave[: len(wave) // HOP * HOP], np.float32)
    mel = log_mel(torch.from_numpy(whole)).numpy()
    loudest = mel.max(1)
    return mel[loudest > loudest.max() - SOUNDING]


if __name__ == "__main__":
    main()
