"""Train the denoiser of speech recognition: the gain of each band, 125 times per second.

    python -m engine.training.nano.train_hush --work DIR --minutes 20 [--start DIR/hush.pt] [--out engine/weights/nano]

Reads DIR/crowd, writes DIR/hush.pt, and at the end OUT/ears/hush.onnx. The inputs are each band's power relative to the
noise floor and to the frame's mean, so the absolute level does not matter; the output is BLOCK frames late. The loss is
in the recognizer's unit: the error of the logarithm of a band's power.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from engine.training.nano.crowd import SPEAKERS
from engine.training.nano.export import Graph, export
from engine.training.nano.mixtures import Mixtures
from engine.worker.models.nano.hush import (
    ABOVE,
    BANDS,
    BLOCK,
    HIDDEN,
    HOP,
    LAYERS,
    LEAST,
    QUANTILE,
    SHARES,
    SMOOTH,
    UNDER,
    WIDTH,
)

BATCH = 12
RATE = 3e-3


class Suppressor(nn.Module):
    """Maps features [batch, frames, 2 * BANDS] to gains [batch, frames, BANDS] between LEAST and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * BANDS, HIDDEN)
        self.memory = nn.GRU(HIDDEN, HIDDEN, LAYERS, batch_first=True)
        self.outer = nn.Linear(HIDDEN, BANDS)

    def forward(self, features: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        remembered, carried = self.memory(torch.relu(self.inner(features)), carried)
        return LEAST + (1 - LEAST) * torch.sigmoid(self.outer(remembered)), carried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--voices", default=",".join(SPEAKERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--start", type=Path, help="a hush.pt to continue from")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    net = Suppressor()
    if args.start:
        net.load_state_dict(torch.load(args.start))
    train(net, Mixtures(args.work / "crowd", args.voices.split(","), args.seed), args.minutes)
    torch.save(net.state_dict(), args.work / "hush.pt")
    if args.out:
        export(graph(net), args.out / "ears" / "hush.onnx")


def train(net: Suppressor, mixtures: Mixtures, minutes: float) -> None:
    """Train for ``minutes``; the learning rate falls to zero."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
    started, step, losses = time.monotonic(), 0, list[float]()
    while (passed := (time.monotonic() - started) / 60 / minutes) < 1:
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 50) * (1 - passed) ** 1.5 + 1e-5
        loss = loss_of(net, *(torch.from_numpy(waves) for waves in mixtures.draw(BATCH)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        step += 1
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"{step} {passed:.2f} {np.mean(losses[-50:]):.4f}", flush=True)


def loss_of(net: Suppressor, mixed: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean squared error of the logarithm of the output; frames with a voice have more weight."""
    power = spectra(mixed)
    shares = torch.from_numpy(SHARES)
    bands = power @ shares.T
    target = (spectra(wanted) @ shares.T).clamp(min=1)
    features = features_of(bands, floor_of(power) @ shares.T)
    gains, _ = net(features, torch.zeros(LAYERS, len(mixed), HIDDEN))
    ideal = 0.5 * (target / bands.clamp(min=1)).log().clamp(2 * float(np.log(LEAST)), 0)
    error = gains[:, BLOCK:].log() - ideal[:, : ideal.shape[1] - BLOCK]
    voiced = (ideal[:, : ideal.shape[1] - BLOCK].mean(2, keepdim=True) > -1.2).float()
    return (error.square() * (0.4 + voiced)).mean()


def spectra(waves: Tensor) -> Tensor:
    """[batch, samples] -> power [batch, frames, WIDTH // 2 + 1], a frame every HOP samples."""
    window = torch.hann_window(WIDTH)
    return torch.fft.rfft(waves.unfold(1, WIDTH, HOP) * window).abs().square()


def floor_of(power: Tensor) -> Tensor:
    """Return the noise floor as `noise_of` does, for training."""
    heard = power[:, : int(torch.randint(125, power.shape[1], ()))]
    smooth = heard.unfold(1, SMOOTH, 1).mean(-1)
    at = int(QUANTILE * smooth.shape[1])
    return ABOVE * smooth.kthvalue(at + 1, dim=1, keepdim=True).values


def features_of(bands: Tensor, floor: Tensor) -> Tensor:
    """As `hush.features_of`."""
    logs = bands.clamp(min=1).log()
    over = (logs - floor.clamp(min=1).log()).clamp(min=UNDER)
    return torch.cat([over, logs - logs.mean(2, keepdim=True)], 2) / 4


def graph(net: Suppressor) -> Graph:
    inputs = {"features": torch.zeros(1, 4, 2 * BANDS), "carried": torch.zeros(LAYERS, 1, HIDDEN)}
    return Graph(net, inputs, ("gains", "carried_out"), {"features": {1: "frames"}})


if __name__ == "__main__":
    main()
