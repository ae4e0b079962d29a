"""Measures nano's delivery: silence before the first sound, loudness across sentences, and pauses between them.

    python -m engine.training.nano.manner [--voice slt] [--weights FOLDER] [--work DIR]

With --work, the voice's teacher is measured too.

Levels are in dB relative to the wave's loudest 20 ms; loudness is the level of the sounding parts in dB of full scale.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.training.nano import meter
from engine.training.nano.buzz import texts
from engine.worker.models.nano.voice import VOICES

RATE_HZ = 16000
STEP = 80  # 5 ms
SILENT_DB = -35.0
SOUNDING_DB = -25.0
PAUSES = {
    "full stop": "The lamp is on. My sister is at home.",
    "question": "Is the lamp on? My sister is at home.",
    "comma": "When the lamp is on, my sister is at home.",
    "none": "The lamp is on my sister's table at home.",
}
Wave = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    sets = texts(), list(PAUSES.values())
    show("nano", *(meter.nano_waves(args.weights, some, args.voice) for some in sets))
    if args.work:
        show("teacher", *(meter.teacher_waves(args.work, some, args.voice) for some in sets))


def show(who: str, said: list[Wave], paused: list[Wave]) -> None:
    leads, loud = np.array([lead_ms(wave) for wave in said]), np.array([loudness_db(wave) for wave in said])
    print(f"{who}: before the first sound {np.median(leads):.0f} ms, at most {leads.max():.0f} ms")
    print(f"{who}: loudness {loud.mean():.1f} dB, standard deviation {loud.std():.2f}, range {np.ptp(loud):.1f}")
    gaps = ", ".join(f"{name} {pause_ms(wave):.0f} ms" for name, wave in zip(PAUSES, paused, strict=True))
    print(f"{who}: longest pause: {gaps}", flush=True)


def levels_db(wave: Wave) -> NDArray[np.float64]:
    """Return the level of every 20 ms, in steps of 5 ms, in dB of full scale."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(wave.astype(np.float64), 2 * STEP), 4 * STEP)[::STEP]
    return 10 * np.log10((windows**2).mean(1) + 1e-10)


def lead_ms(wave: Wave) -> float:
    """Return the milliseconds before the first sound."""
    levels = levels_db(wave)
    return float((levels > levels.max() + SILENT_DB).argmax()) * STEP * 1000 / RATE_HZ


def loudness_db(wave: Wave) -> float:
    """Return the mean power of the sounding parts, in dB of full scale."""
    levels = levels_db(wave)
    return float(10 * np.log10((10 ** (levels[levels > levels.max() + SOUNDING_DB] / 10)).mean()))


def pause_ms(wave: Wave) -> float:
    """Return the longest silence between two sounds, in milliseconds."""
    levels = levels_db(wave)
    sounding = np.flatnonzero(levels > levels.max() + SILENT_DB)
    return float(np.diff(sounding).max(initial=1) - 1) * STEP * 1000 / RATE_HZ


if __name__ == "__main__":
    main()
