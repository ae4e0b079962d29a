"""Train the eyes on drawn scenes: ``python -m engine.training.nano.train_eyes --work DIR``.

First the galleries are drawn (once per folder), then the finder is trained, then the reader, which also learns to
reject the finder's false finds. Both use AdamW on one thread, for a fixed time instead of a number of steps, and keep
an exponential moving average of the weights. ``--resume`` continues from the checkpoints in the folder.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.training.nano import fonts
from engine.training.nano.eyes import Finder, Reader, export
from engine.training.nano.gallery import Gallery, draw, nothing
from engine.training.nano.scenes import SIDE, Artist
from engine.worker.models.nano.eyes import AROUND, CELL, NOTHING, Find, found
from engine.worker.models.nano.scene import SHAPES

Batch = tuple[Tensor, ...]
Net = TypeVar("Net", Finder, Reader)
UNCOLOURED = -100
SCENES, NEAR = 4_000, 14_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for galleries, checkpoints and exports")
    parser.add_argument(
        "--minutes", type=float, nargs=2, default=(24, 20), help="training time of the finder and of the reader"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenes", type=int, default=SCENES)
    parser.add_argument("--near", type=int, default=NEAR)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--fonts", type=Path, default=fonts.FOLDER)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    typefaces = fonts.learned(args.fonts)
    scenes = draw(Artist(args.seed, typefaces), args.scenes, SIDE, args.work / "scenes")
    near = draw(Artist(args.seed + 1, typefaces, near=True), args.near, SIDE // 2, args.work / "near")
    finder, reader = Finder(), Reader()
    if args.resume:
        for model, path in ((finder, args.work / "finder.pt"), (reader, args.work / "reader.pt")):
            if path.exists():
                model.load_state_dict(torch.load(path, weights_only=True))
    rng = np.random.default_rng(args.seed)
    finder = train(finder, finder_loss, finder_batches(rng, scenes, 32), args.minutes[0] * 60, args.rate)
    torch.save(finder.state_dict(), args.work / "finder.pt")
    export(finder, reader, args.work)
    false = false_finds(finder, scenes)
    print(f"{len(false)} false finds in {len(scenes)} scenes", flush=True)
    batches = reader_batches(rng, scenes, near, false, 128)
    reader = train(reader, reader_loss, batches, args.minutes[1] * 60, args.rate)
    torch.save(reader.state_dict(), args.work / "reader.pt")
    export(finder, reader, args.work)


def train(
    model: Net, loss_of: Callable[[nn.Module, Batch], Tensor], data: Iterator[Batch], budget_s: float, rate: float
) -> Net:
    """Train for ``budget_s`` seconds, and return the moving average of the weights."""
    model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.02)
    average = copy.deepcopy(model)
    start = told = time.monotonic()
    losses, step = list[float](), 0
    while (done := (time.monotonic() - start) / max(budget_s, 1e-3)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 200, 1.0, max((1 - done) / 0.75, 0.01))
        model.train()
        loss = loss_of(model, next(data))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _follow(average, model, min(0.998, step / (step + 20)))
        losses.append(loss.item())
        step += 1
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"{told - start:6.0f} s  step {step}  loss {np.mean(losses):.4f}", flush=True)
            losses = []
    return average.eval()


@torch.no_grad()
def _follow(average: nn.Module, model: nn.Module, keep: float) -> None:
    for slow, fast in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        if slow.is_floating_point():
            slow.lerp_(fast, 1 - keep)
        else:
            slow.copy_(fast)


def halved(gallery: Gallery, numbers: np.ndarray) -> np.ndarray:
    """Return squares at half size, as the finder's input: float32 [n, S / 2, S / 2, 3]."""
    squares = gallery.pictures[numbers].astype(np.uint16)
    sums = squares[:, ::2, ::2] + squares[:, 1::2, ::2] + squares[:, ::2, 1::2] + squares[:, 1::2, 1::2]
    return sums.astype(np.float32) / np.float32(1020)


def finder_batches(rng: np.random.Generator, scenes: Gallery, size: int) -> Iterator[Batch]:
    """Yield pictures, statistics, the target map [B, 6, 32, 32] (heat, box, the box's weight), and backgrounds."""
    while True:
        for numbers in map(np.sort, np.array_split(rng.permutation(len(scenes)), len(scenes) // size)):
            seen, maps = halved(scenes, numbers), list[np.ndarray]()
            for row, number in enumerate(numbers):
                things = scenes.things[number].copy()
                for axis in (0, 1):
                    if rng.random() < 0.5:
                        seen[row] = np.flip(seen[row], 1 - axis)
                        things[:, axis] = SIDE - things[:, axis]
                maps.append(target(things))
            pictures = torch.from_numpy(np.ascontiguousarray(seen.transpose(0, 3, 1, 2)))
            told, backgrounds = (
                torch.from_numpy(field[np.sort(numbers)]) for field in (scenes.told, scenes.backgrounds)
            )
            yield pictures, told, torch.from_numpy(np.stack(maps)), backgrounds


def target(things: np.ndarray) -> np.ndarray:
    """Return the finder's target map for things [m, 6]: float32 [6, 32, 32]."""
    cells = SIDE // CELL
    wanted = np.zeros((6, cells, cells), np.float32)
    rows, columns = np.mgrid[:cells, :cells].astype(np.float32)
    for x, y, width, height, *_ in things / CELL:
        row, column = (int(np.clip(at, 0, cells - 1)) for at in (y, x))
        wide, high = (max(0.5, side * 0.13) for side in (width, height))
        heat = np.exp(-((columns - column) ** 2 / (2 * wide**2)) - (rows - row) ** 2 / (2 * high**2))
        near = (heat > wanted[0]) & (abs(rows - row) <= 1) & (abs(columns - column) <= 1)
        wanted[0] = np.maximum(wanted[0], heat)
        box = (x - columns, y - rows, np.full_like(rows, np.log(width)), np.full_like(rows, np.log(height)))
        wanted[1:5][:, near] = np.stack(box)[:, near]
        wanted[5][near] = 0.3
        wanted[5, row, column] = 1
    return wanted


def finder_loss(model: nn.Module, batch: Batch) -> Tensor:
    picture, told, wanted, backgrounds = batch
    fields, colours = model(picture.contiguous(memory_format=torch.channels_last), told)
    heat, logit = wanted[:, 0], fields[:, 0]
    sure = logit.sigmoid()
    hit = (1 - sure) ** 2 * F.logsigmoid(logit) * (heat > 0.999)
    miss = (1 - heat) ** 4 * sure**2 * F.logsigmoid(-logit) * (heat <= 0.999)
    middles = (heat > 0.999).sum().clamp(min=1)
    boxes = ((fields[:, 1:] - wanted[:, 1:5]).abs().sum(1) * wanted[:, 5]).sum() / wanted[:, 5].sum().clamp(min=1)
    return -(hit.sum() + miss.sum()) / middles + 0.5 * boxes + 0.3 * F.cross_entropy(colours, backgrounds)


@torch.no_grad()
def false_finds(finder: nn.Module, scenes: Gallery) -> list[tuple[int, Find]]:
    """Return the finder's finds where there is nothing: (scene, find)."""
    false: list[tuple[int, Find]] = []
    for numbers in np.array_split(np.arange(len(scenes)), max(1, len(scenes) // 64)):
        seen = torch.from_numpy(np.ascontiguousarray(halved(scenes, numbers).transpose(0, 3, 1, 2)))
        fields = finder(seen, torch.from_numpy(scenes.told[numbers]))[0].numpy()
        for number, field in zip(numbers, fields, strict=True):
            for find in found(field):
                things = scenes.things[number]
                far = np.hypot(things[:, 0] - find.x, things[:, 1] - find.y) / things[:, 2:4].max(1, initial=1)
                if far.min(initial=9) > 0.5:
                    false.append((int(number), find))
    return false


def reader_batches(
    rng: np.random.Generator, scenes: Gallery, near: Gallery, false: list[tuple[int, Find]], size: int
) -> Iterator[Batch]:
    """Yield pieces [B, 3, PIECE, PIECE], statistics, kinds, and colours (UNCOLOURED where the colour is not
    learned).
    """
    shown = [
        (gallery, [(n, row) for n, rows in enumerate(gallery.things) for row in rows]) for gallery in (scenes, near)
    ]
    while True:
        rows = [_piece(rng, shown, scenes, false) for _ in range(size)]
        pieces = np.stack([piece for piece, _, _, _ in rows]).transpose(0, 3, 1, 2)
        told = np.stack([told for _, told, _, _ in rows])
        kinds, colours = (torch.tensor([row[at] for row in rows]) for at in (2, 3))
        yield torch.from_numpy(np.ascontiguousarray(pieces)), torch.from_numpy(told), kinds, colours


def _piece(
    rng: np.random.Generator,
    shown: list[tuple[Gallery, list[tuple[int, np.ndarray]]]],
    scenes: Gallery,
    false: list[tuple[int, Find]],
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Return one piece, its statistics, kind and colour; four in five show a thing, slightly off centre."""
    if rng.random() < 0.2:
        return _empty_piece(rng, scenes, false)
    gallery, things = shown[int(rng.random() < 0.55)]
    number, (x, y, width, height, kind, colour) = things[rng.integers(len(things))]
    side = max(width, height) * AROUND * rng.uniform(0.88, 1.14)
    x, y = np.array((x, y)) + rng.uniform(-0.06, 0.06, 2) * side
    piece = gallery.piece(number, float(x), float(y), float(side))
    return piece, gallery.told[number], int(kind), int(colour) if kind < len(SHAPES) else UNCOLOURED


def _empty_piece(
    rng: np.random.Generator, scenes: Gallery, false: list[tuple[int, Find]]
) -> tuple[np.ndarray, np.ndarray, int, int]:
    place, number = None, 0
    if false and rng.random() < 0.5:
        number, find = false[rng.integers(len(false))]
        place = find.x, find.y, find.side
    while place is None:
        number = int(rng.integers(len(scenes)))
        place = nothing(rng, scenes, number)
    return scenes.piece(number, *place), scenes.told[number], NOTHING, UNCOLOURED


def reader_loss(model: nn.Module, batch: Batch) -> Tensor:
    pieces, told, kinds, colours = batch
    pieces = pieces * torch.empty(len(pieces), 3, 1, 1).uniform_(0.95, 1.05)
    kind, colour = model(pieces.contiguous(memory_format=torch.channels_last), told)
    coloured = F.cross_entropy(colour, colours, ignore_index=UNCOLOURED)
    return F.cross_entropy(kind, kinds, label_smoothing=0.02) + 0.5 * coloured


if __name__ == "__main__":
    main()
