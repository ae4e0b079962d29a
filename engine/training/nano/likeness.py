"""A second meter that hears no words: how alike nano and its teacher sound when they say the same sentence.

    python -m engine.training.nano.likeness --work DIR [--voice slt] [--weights FOLDER] [--sets prose]

needs the voice's teacher.

Both are turned into smoothed log-mel spectra (a cosine transform, its first 13 coefficients but the level) every 20 ms,
warped in time onto each other, and their distance along the best path is given in dB. Beside it stands the distance to
what the teacher says of another sentence: the figure that means nothing was alike. It uses no recogniser, so it is
blind where the recogniser of `meter` is not, and the other way round; it likes the teacher's faults as well.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dct

from engine.training.nano import meter
from engine.training.nano.features import HOP, MELS, MIN_LOG_MEL, log_mel
from engine.worker.models.nano.voice import VOICES

COEFFICIENTS = 13
Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--sets", nargs="+", choices=meter.SETS, default=meter.GENRES)
    args = parser.parse_args()
    for name in args.sets:
        texts = meter.sentences(name)
        teacher = [cepstra(wave) for wave in meter.teacher_waves(args.work, texts, args.voice)]
        nano = [cepstra(wave) for wave in meter.nano_waves(args.weights, texts, args.voice)]
        same = np.mean([distance_db(a, b) for a, b in zip(teacher, nano, strict=True)])
        other = np.mean([distance_db(a, b) for a, b in zip(teacher[1:] + teacher[:1], nano, strict=True)])
        print(f"{name}: {same:.2f} dB from the teacher's, {other:.2f} dB from another sentence", flush=True)


def cepstra(wave: NDArray[np.float32]) -> Floats:
    """[n] samples at 16 kHz -> [n / 320, 13], scaled so that distances are root mean squares over bands in dB."""
    whole = np.ascontiguousarray(wave[: len(wave) // (2 * HOP) * 2 * HOP], np.float32)
    mel = log_mel(torch.from_numpy(whole)).clamp(min=MIN_LOG_MEL).numpy()[::2]
    spectra: Floats = np.asarray(dct(mel.astype(np.float64), norm="ortho"))
    return spectra[:, 1 : COEFFICIENTS + 1] * (20 / np.log(10) / np.sqrt(MELS))


def distance_db(a: Floats, b: Floats) -> float:
    """Mean distance along the best monotonic path, in which either may wait."""
    cost = np.sqrt(np.maximum(0, (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T))
    total, steps = np.full(len(b) + 1, np.inf), np.zeros(len(b) + 1)
    total[0] = 0
    for row in cost:
        before, before_steps = total.copy(), steps.copy()
        total[0] = np.inf
        for j, here in enumerate(row.tolist(), 1):
            best, count = min(
                (before[j - 1], before_steps[j - 1]), (before[j], before_steps[j]), (total[j - 1], steps[j - 1])
            )
            total[j], steps[j] = best + here, count + 1
    return float(total[-1] / steps[-1])


if __name__ == "__main__":
    main()
