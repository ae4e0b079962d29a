"""Fits the top octave, 8 to 12 kHz: a linear map from code2wav's state below 8 kHz, fitted on the 32 kHz teacher.

    python -m engine.training.nano.top --work DIR [--judge]

Writes `top_weight` and `top_level` into DIR/code2wav.pt. Then, or with --judge alone, prints the errors of its levels
on unseen speech in dB per band, next to those of the baseline, the last band extended with a fall of 17 dB to 12 kHz.
Uses only the voice `slt`; that the map holds for other voices is an assumption that teachers of 16 kHz cannot test.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.training.nano.code2wav import TOPS_HZ, Filters, loudness
from engine.training.nano.codec import Codec, path
from engine.training.nano.dataset import HELD_OUT
from engine.training.nano.export import blank
from engine.training.nano.features import HOP, Speech
from engine.training.nano.utterances import GAINS, Utterance, utterances
from engine.worker.models.nano.voice import VOICES

VOICE = "slt"
RATE_HZ = 32000
WIDTH_HZ = 1000
AUDIBLE = -1.5  # log-mel that the loudest band of a frame reaches
FALL = 2.0 / 4000  # of the last band carried on: nepers a Hz
RIDGE = 1e-4
DB = 20 / math.log(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--judge", action="store_true", help="fit nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    _, filters = blank()
    filters.load_state_dict(torch.load(args.work / "code2wav.pt"))
    said, codec = utterances(args.work, VOICE), Codec.load(path(args.work, VOICE))
    if not args.judge:
        fit(filters, *frames(filters, codec, said[HELD_OUT :: len(said) // args.count]))
        torch.save(filters.state_dict(), args.work / "code2wav.pt")
    judge(filters, *frames(filters, codec, said[:HELD_OUT]))


@torch.no_grad()
def frames(filters: Filters, codec: Codec, said: Sequence[Utterance]) -> tuple[Tensor, Tensor, Tensor]:
    """What code2wav makes of audible frames, plain [N, 82], its last band [N], and the teacher's log gains [N, 4]."""
    voice, found = torch.tensor([VOICES.index(VOICE)]), []
    for utterance in said:
        speech = utterance.speech()
        codes = codec.quantise(codec.latent(speech))[None]
        values = filters.values(filters.embed(codes, voice), voice, *filters.initial(1))
        audible = speech.mel.max(1).values > AUDIBLE
        last, true = loudness(values.bands)[0, :, -1], levels(utterance, speech) - filters.noise_level
        found.append((values.plain[0][audible], last[audible], true[audible]))
    plain, last, true = (torch.cat(part) for part in zip(*found, strict=True))
    return plain, last, true


def levels(utterance: Utterance, speech: Speech) -> Tensor:
    """The teacher's log magnitude in the four bands, on the scale of `features.log_mel`, [T, 4]."""
    wave = np.fromfile(utterance.directory / f"{utterance.name}.s32", "<i2").astype(np.float32) / np.float32(32768)
    wave = torch.from_numpy(wave[round(speech.cut_s * RATE_HZ) :] * GAINS[VOICE])
    count = len(speech.wave) * 2
    wave = F.pad(wave, (480, 480 + count - len(wave)))
    spectrum = torch.fft.rfft(wave.unfold(0, 1280, 2 * HOP) * torch.hann_window(1280), 2048).abs() / 2
    at_hz = torch.arange(spectrum.shape[1]) * RATE_HZ / 2048
    inside = [(at_hz - centre).abs() <= WIDTH_HZ / 2 for centre in TOPS_HZ]
    return torch.log(torch.stack([spectrum[:, band].mean(1) for band in inside], 1).clamp(min=1e-4))


def fit(filters: Filters, plain: Tensor, last: Tensor, true: Tensor) -> None:
    """Least squares, a little ridge."""
    known = torch.cat([plain, torch.ones(len(plain), 1)], 1).double()
    wanted = (true - filters.anchors()[VOICES.index(VOICE)]).double()
    weight = torch.linalg.solve(known.T @ known + RIDGE * len(known) * torch.eye(known.shape[1]), known.T @ wanted)
    filters.top_weight.copy_(weight[:-1])
    filters.top_level.copy_(weight[-1])


def judge(filters: Filters, plain: Tensor, last: Tensor, true: Tensor) -> None:
    voice = torch.tensor([VOICES.index(VOICE)])
    carried = last[:, None] - FALL * (torch.tensor(TOPS_HZ) - 8000)
    print("band around kHz       " + "".join(f"{hz / 1000:7.1f}" for hz in TOPS_HZ))
    for name, made in (("carried on", carried), ("learned", filters.top(plain[None], voice)[0])):
        error = (made - true) * DB
        print(f"{name:10} error, dB  " + "".join(f"{value:7.1f}" for value in error.abs().mean(0).tolist()))
        print(f"{name:10} too loud by" + "".join(f"{value:7.1f}" for value in error.mean(0).tolist()))


if __name__ == "__main__":
    main()
