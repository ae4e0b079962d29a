"""Train code2wav: log-mel, F0 and voicing first, then the multi-resolution spectrum of the rendered wave too.

    python -m engine.training.nano.train_code2wav --work DIR --minutes 60 [--start code2wav.pt]

Writes DIR/code2wav.pt, an average of the weights, every two minutes.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.training.nano.code2wav import Filters, Source, spectral_loss
from engine.training.nano.codec import STACK, Codec
from engine.training.nano.features import FRAME, MIN_LOG_MEL
from engine.training.nano.train_talker import Average, schedule

FRAMES = 24  # codec frames a crop
RATE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--start", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    random.seed(1)
    Training(args.work, args.start).run(args.minutes * 60, args.rate, 0.0 if args.start else 0.15)


class Training:
    def __init__(self, work: Path, start: Path | None) -> None:
        self.work = work
        rows = torch.load(work / "waves.pt")
        self.held_out = [crop(row, 5, 40) for row in rows[:16] if len(row["codes"]) > 46]
        self.rows = [row for row in rows[16:] if len(row["codes"]) > FRAMES]
        self.net, self.source = Filters(Codec.load(work / "codec.safetensors")), Source()
        if start:
            self.net.load_state_dict(torch.load(start))
        self.average = Average(self.net)
        self.optimiser = torch.optim.AdamW(self.net.parameters(), RATE, betas=(0.9, 0.98))
        size = sum(p.numel() for p in self.net.parameters()) / 1e6
        print(f"{len(self.rows)} utterances, {size:.2f} M parameters", flush=True)

    def run(self, seconds: float, rate: float, features_only: float) -> None:
        began, printed, step = time.monotonic(), 0.0, 0
        while (elapsed := time.monotonic() - began) < seconds:
            spectrum = elapsed > seconds * features_only
            for group in self.optimiser.param_groups:
                group["lr"] = rate * min(1, (step + 1) / 50) * schedule(elapsed / seconds)
            rows = random.choices(self.rows, k=8)
            losses = self.losses(
                [crop(row, random.randrange(len(row["codes"]) - FRAMES), FRAMES) for row in rows], spectrum
            )
            self.optimiser.zero_grad()
            torch.stack(list(losses.values())).sum().backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimiser.step()
            self.average.update(self.net)
            step += 1
            if elapsed - printed > 120 or step == 20:
                printed = elapsed
                self.report(elapsed, step)
        self.report(seconds, step)

    def losses(self, crops: list[dict[str, Tensor]], spectrum: bool) -> dict[str, Tensor]:
        batch = {key: torch.stack([piece[key] for piece in crops]) for key in crops[0]}
        latent = self.net.embed(batch["codes"].long())
        mel, log_f0, voiced, bands, _, _ = self.net.values(latent, *self.net.initial(len(crops)))
        out = {
            "mel": (mel.clamp(min=MIN_LOG_MEL) - batch["mel"].float()).abs().mean(),
            "f0": 5 * ((log_f0 - batch["log_f0"]).abs() * batch["voiced"]).mean(),
            "voiced": (voiced - batch["voiced"]).abs().mean(),
        }
        if spectrum:
            wave = self.source(log_f0 if random.random() < 0.5 else batch["log_f0"], bands)
            out["spectrum"] = spectral_loss(wave, batch["wave"].float() / 32768)
        return out

    def report(self, elapsed: float, step: int) -> None:
        with self.average.applied(self.net), torch.no_grad():
            losses = self.losses(self.held_out, spectrum=True)
            print(
                f"{elapsed / 60:.1f} min, step {step}", {k: round(float(v), 4) for k, v in losses.items()}, flush=True
            )
            torch.save(self.net.state_dict(), self.work / "code2wav.part")
        (self.work / "code2wav.part").replace(self.work / "code2wav.pt")


def crop(row: dict, begin: int, frames: int) -> dict[str, Tensor]:
    fine = slice(STACK * begin, STACK * (begin + frames))
    out = {key: row[key][fine] for key in ("mel", "log_f0", "voiced")}
    return out | {
        "codes": row["codes"][begin : begin + frames],
        "wave": row["wave"][FRAME * begin : FRAME * (begin + frames)],
    }


if __name__ == "__main__":
    main()
