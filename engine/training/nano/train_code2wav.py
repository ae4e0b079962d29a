"""Train code2wav: first log-mel, F0 and voicing, then also the multi-resolution spectrum of the rendered wave.

    python -m engine.training.nano.train_code2wav --work DIR --minutes 60 [--start code2wav.pt] [--learn slt awb]

With --learn only these voices are trained; the shared weights and all other voices stay bit-identical. Writes
DIR/code2wav.pt, an average of the weights, every two minutes.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.training.nano.code2wav import Filters, Source
from engine.training.nano.codec import STACK, Codec, path
from engine.training.nano.dataset import by_voice
from engine.training.nano.features import FRAME, MIN_LOG_MEL
from engine.training.nano.train_talker import Average, schedule
from engine.worker.models.nano.voice import VOICES

FRAMES = 24  # codec frames per crop
RATE = 1e-3
OWN = ("speaker", "enter", "correct")  # modules with a row for each voice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--start", type=Path)
    parser.add_argument("--learn", nargs="+", choices=VOICES, default=[], help="train only these voices")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    random.seed(1)
    training = Training(args.work, args.start)
    if args.learn:
        training.confine([VOICES.index(voice) for voice in args.learn])
    training.run(until(args.minutes * 60), args.rate, 0.0 if args.start else 0.15)


def until(seconds: float) -> Iterator[float]:
    """Yield the fraction of the time that has passed, 0 to 1, until it is over."""
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        yield elapsed_s / seconds


class Training:
    def __init__(self, work: Path, start: Path | None) -> None:
        self.work = work
        rows = by_voice(torch.load(work / "waves.pt"))
        self.held_out = [[crop(row, 5, 40) for row in own[:16] if len(row["codes"]) > 46] for own in rows]
        self.rows = [row for own in rows for row in own[16:] if len(row["codes"]) > FRAMES]
        self.net, self.source = Filters([Codec.load(path(work, voice)) for voice in VOICES]), Source()
        if start:
            self.net.load_state_dict(torch.load(start))
        self.average = Average(self.net)
        self.optimiser = torch.optim.AdamW(self.net.parameters(), RATE, betas=(0.9, 0.98))
        self.learning: list[int] | None = None
        size = sum(p.numel() for p in self.net.parameters()) / 1e6
        print(f"{len(self.rows)} utterances, {size:.2f} M parameters", flush=True)

    def confine(self, voices: list[int]) -> None:
        """From now on only the rows of these voices learn."""
        self.learning = voices
        self.rows = [row for row in self.rows if int(row["voice"]) in voices]
        for name, value in self.net.named_parameters():
            value.requires_grad_(name.split(".")[0] in OWN)
        own = [value for value in self.net.parameters() if value.requires_grad]
        self.optimiser = torch.optim.AdamW(own, RATE, betas=(0.9, 0.98), weight_decay=0)

    def spare(self) -> None:
        """Gradients of the voices that don't learn are none."""
        if self.learning is not None:
            for value in self.net.parameters():
                if value.grad is not None:
                    kept = value.grad[self.learning].clone()
                    value.grad.zero_()
                    value.grad[self.learning] = kept

    def run(self, progress: Iterable[float], rate: float, features_only: float) -> None:
        """A step for each of ``progress``, which says how much of the training is done; the spectrum counts from
        ``features_only`` of it on."""
        began, printed, step = time.monotonic(), 0.0, 0
        for done in progress:
            spectrum, elapsed = done > features_only, time.monotonic() - began
            for group in self.optimiser.param_groups:
                group["lr"] = rate * min(1, (step + 1) / 50) * schedule(done)
            rows = random.choices(self.rows, k=8)
            losses = self.losses(
                [crop(row, random.randrange(len(row["codes"]) - FRAMES), FRAMES) for row in rows], spectrum
            )
            self.optimiser.zero_grad()
            torch.stack(list(losses.values())).sum().backward()
            self.spare()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimiser.step()
            self.average.update(self.net)
            step += 1
            if elapsed - printed > 120 or step == 20:
                printed = elapsed
                self.report(elapsed, step)
        self.report(time.monotonic() - began, step)

    def losses(self, crops: list[dict[str, Tensor]], spectrum: bool) -> dict[str, Tensor]:
        batch = {key: torch.stack([piece[key] for piece in crops]) for key in crops[0]}
        latent = self.net.embed(batch["codes"].long(), batch["voice"])
        found = self.net.values(latent, batch["voice"], *self.net.initial(len(crops)))
        out = {
            "mel": (found.mel.clamp(min=MIN_LOG_MEL) - batch["mel"].float()).abs().mean(),
            "f0": 5 * ((found.log_f0 - batch["log_f0"]).abs() * batch["voiced"]).mean(),
            "voiced": (found.voiced - batch["voiced"]).abs().mean(),
        }
        if spectrum:
            wave = self.source(found.log_f0 if random.random() < 0.5 else batch["log_f0"], found.bands)
            out["spectrum"] = spectral_loss(wave, batch["wave"].float() / 32768)
        return out

    def report(self, elapsed: float, step: int) -> None:
        with self.average.applied(self.net), torch.no_grad():
            print(f"{elapsed / 60:.1f} min, step {step}", flush=True)
            for voice, held_out in zip(VOICES, self.held_out, strict=True):
                losses = self.losses(held_out, spectrum=True)
                print(f"  {voice}", {key: round(float(value), 4) for key, value in losses.items()}, flush=True)
            torch.save(self.net.state_dict(), self.work / "code2wav.part")
        (self.work / "code2wav.part").replace(self.work / "code2wav.pt")


def spectral_loss(made: Tensor, true: Tensor) -> Tensor:
    """Multi-resolution STFT: spectral convergence + log magnitude."""
    total = torch.zeros(())
    for size in (256, 512, 1024, 2048):
        window = torch.hann_window(size)
        a, b = (torch.stft(x, size, size // 4, size, window, return_complex=True).abs() for x in (made, true))
        total = (
            total
            + 0.5 * (a - b).norm() / b.norm().clamp(min=1e-3)
            + F.l1_loss(torch.log(a + 1e-3), torch.log(b + 1e-3))
        )
    return total / 4


def crop(row: dict, begin: int, frames: int) -> dict[str, Tensor]:
    fine = slice(STACK * begin, STACK * (begin + frames))
    out = {key: row[key][fine] for key in ("mel", "log_f0", "voiced")}
    return out | {
        "voice": torch.tensor(row["voice"]),
        "codes": row["codes"][begin : begin + frames],
        "wave": row["wave"][FRAME * begin : FRAME * (begin + frames)],
    }


if __name__ == "__main__":
    main()
