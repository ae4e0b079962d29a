"""A stored set of drawn scenes for training the vision networks, with the engine's preprocessing applied."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from engine.training.nano.scenes import Artist, Example
from engine.worker.models.nano import picture as pictures
from engine.worker.models.nano.eyes import PIECE
from engine.worker.models.nano.scene import CHARACTERS, COLOURS, SHAPES

KINDS = (*SHAPES, *CHARACTERS)


@dataclass(frozen=True, slots=True)
class Gallery:
    """``pictures`` uint8 [n, S, S, 3], each centred in a gray square, and ``told`` [n, STATISTICS].

    ``backgrounds`` [n] are indices of COLOURS. ``things[i]`` [m, 6] float32: centre, width and height in pixels of the
    square, kind (KINDS), colour (COLOURS).
    """

    pictures: NDArray[np.uint8]
    told: NDArray[np.float32]
    backgrounds: NDArray[np.int64]
    things: list[NDArray[np.float32]]

    def __len__(self) -> int:
        return len(self.pictures)

    def piece(self, number: int, x: float, y: float, side: float) -> NDArray[np.float32]:
        """Return the reader's input at a place: float32 [PIECE, PIECE, 3]."""
        return pictures.cut(self.pictures[number].astype(np.float32) / np.float32(255), x, y, side, PIECE)


def draw(artist: Artist, count: int, side: int, folder: Path) -> Gallery:
    """Draw a gallery of squares of ``side`` pixels into a folder, or open an existing one."""
    if not (folder / "things.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        kept = np.lib.format.open_memmap(folder / "pictures.npy", "w+", np.uint8, (count, side, side, 3))
        rows = [_hang(kept[number], artist.example(), side) for number in range(count)]
        kept.flush()
        np.save(folder / "told.npy", np.stack([told for told, _, _ in rows]))
        notes = {"backgrounds": [b for _, b, _ in rows], "things": [things for _, _, things in rows]}
        (folder / "things.json").write_text(json.dumps(notes))
    notes: dict[str, Any] = json.loads((folder / "things.json").read_text())
    return Gallery(
        np.load(folder / "pictures.npy", mmap_mode="r"),
        np.load(folder / "told.npy"),
        np.array(notes["backgrounds"]),
        [np.array(things, np.float32).reshape(-1, 6) for things in notes["things"]],
    )


def _hang(square: NDArray[np.uint8], example: Example, side: int) -> tuple[NDArray[np.float32], int, list[list[float]]]:
    """Put a picture into its square, and return its statistics, background and things."""
    raw = example.pixels.astype(np.float32) / np.float32(255)
    brightness = pictures.brightest(raw)
    seen = pictures.lifted(raw, brightness)
    top, left = (side - seen.shape[0]) // 2, (side - seen.shape[1]) // 2
    square[:] = 128
    square[top : top + seen.shape[0], left : left + seen.shape[1]] = (seen * 255 + 0.5).astype(np.uint8)
    things: list[list[float]] = []
    for one in (*example.shapes, *example.letters):
        x, y, width, height = (float(value) for value in one.box)
        things.append([x + left, y + top, width, height, KINDS.index(one.name), COLOURS.index(one.colour)])
    return pictures.statistics(seen, brightness), COLOURS.index(example.background), things


def nothing(rng: Generator, gallery: Gallery, number: int) -> tuple[float, float, float] | None:
    """Return a place where the reader must see nothing: next to things, or far too close or too far from one."""
    side, things = gallery.pictures.shape[1], gallery.things[number]
    if len(things) and rng.random() < 0.5:
        x, y, width, height = things[rng.integers(len(things)), :4]
        around = max(width, height)
        way = rng.integers(3)
        if way == 0:
            return float(x), float(y), float(around * rng.uniform(0.25, 0.4))
        if way == 1:
            return float(x), float(y), float(around * rng.uniform(2.8, 3.5))
        angle = rng.uniform(0, 2 * np.pi)
        return (
            float(x + around * np.cos(angle)),
            float(y + around * np.sin(angle)),
            float(around * rng.uniform(0.8, 1.3)),
        )
    x, y = rng.uniform(0.1, 0.9, 2) * side
    wide = float(rng.uniform(0.08, 0.4) * side)
    clear = all(np.hypot(x - t[0], y - t[1]) > (max(t[2], t[3]) + wide) * 0.4 for t in things)
    return (float(x), float(y), wide) if clear else None
