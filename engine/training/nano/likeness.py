"""Compare how alike nano and its teacher sound for the same sentence, without speech recognition.

    python -m engine.training.nano.likeness --work DIR [--voice slt] [--weights FOLDER] [--sets prose]

Needs the voice's teacher. Both recordings become smoothed log-mel spectra (13 cosine coefficients without the level)
every 20 ms, which are time-warped onto each other; the distance along the best path is in dB. The distance to another
sentence of the teacher is shown as the baseline. It has no recognizer, so its blind spots differ from those of `meter`;
it also rewards the teacher's faults.
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
    """Convert [n] samples at 16 kHz to [n / 320, 13], scaled so that distances are root mean squares over bands in
    dB.
    """
    whole = np.ascontiguousarray(wave[: len(wave) // (2 * HOP) * 2 * HOP], np.float32)
    mel = log_mel(torch.from_numpy(whole)).clamp(min=MIN_LOG_MEL).numpy()[::2]
    spectra: Floats = np.asarray(dct(mel.astype(np.float64), norm="ortho"))
    return spectra[:, 1 : COEFFICIENTS + 1] * (20 / np.log(10) / np.sqrt(MELS))


def distance_db(a: Floats, b: Floats) -> float:
    """Return the mean distance along the best monotonic path."""
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
