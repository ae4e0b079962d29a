"""Drawn scenes to train and test the eyes, with the truth: ``python -m engine.training.nano.scenes --out DIR`` shows
some.

Scenes are coloured shapes and printed characters on coloured surfaces, in any of three lights, as seen by a camera; an
endless sequence for each seed. Scenes for tests have surfaces, clutter, lamps and typefaces that training never has.
Colours are unambiguous, and indistinguishable things are not drawn: in the dark no gray, orange, pink or brown, and
never two similar colours.
"""

from __future__ import annotations

import argparse
import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from engine.training.nano import fonts
from engine.training.nano.backdrops import Rgb, clutter, shade, surface
from engine.training.nano.lens import taken
from engine.training.nano.outlines import OUTLINES, perspective, stretched
from engine.worker.models.nano.scene import CHARACTERS, COLOURS, SHAPES, Scene, Thing, grouped

SIDE = 256
"""Longer side of a picture in pixels; it is drawn at twice the size."""
SIZES = ((256, 192), (256, 144), (192, 256), (256, 256))
HUES: dict[str, tuple[float, float, float, float, float, float]] = {
    "black": (0, 360, 0.0, 0.3, 0.03, 0.1),
    "white": (0, 360, 0.0, 0.05, 0.92, 1.0),
    "gray": (0, 360, 0.0, 0.07, 0.48, 0.64),
    "red": (-10, 6, 0.8, 1.0, 0.8, 1.0),
    "orange": (22, 34, 0.85, 1.0, 0.92, 1.0),
    "yellow": (50, 60, 0.75, 1.0, 0.9, 1.0),
    "green": (95, 150, 0.6, 0.95, 0.5, 0.8),
    "blue": (208, 238, 0.7, 1.0, 0.6, 0.95),
    "purple": (270, 290, 0.55, 0.9, 0.5, 0.75),
    "pink": (325, 348, 0.35, 0.6, 0.95, 1.0),
    "brown": (18, 28, 0.6, 0.8, 0.32, 0.44),
}
"""Colour -> ranges of hue in degrees, saturation and value."""
BRIGHT = frozenset({"white", "red", "orange", "yellow", "pink"})
"""Colours whose value shows how much light there is; every scene has one of them."""
ALIKE = (
    {"orange", "yellow"}, {"orange", "red"}, {"pink", "purple"}, {"brown", "orange"}, {"brown", "black"},
    {"gray", "white"},
)  # fmt: skip
"""Pairs of colours of which neither is drawn on the other."""
IN_LITTLE_LIGHT = ("black", "white", "red", "yellow", "green", "blue", "purple")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn thing, in pixels: ``name`` is a shape or a character, ``outline`` [n, 2] float surrounds it."""

    name: str
    colour: str
    outline: NDArray[np.float64]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Middle x, middle y, width and height of the upright bounding box."""
        (left, top), (right, bottom) = self.outline.min(0), self.outline.max(0)
        return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


@dataclass(frozen=True, slots=True)
class Example:
    """A picture, uint8 [H, W, 3], and its true contents."""

    pixels: NDArray[np.uint8]
    light: str
    background: str
    shapes: tuple[Drawn, ...]
    letters: tuple[Drawn, ...]

    @property
    def scene(self) -> Scene:
        """The scene as perfect recognition would describe it."""
        height, width = self.pixels.shape[:2]
        things = [Thing(d.name, d.colour, x / width, y / height, w / width, h / height)
                  for d in self.shapes for x, y, w, h in [d.box]]  # fmt: skip
        text = "".join(letter.name for letter in self.letters)
        return Scene(self.light, self.background, grouped(things), text)


class Artist:
    """Draws examples; with ``held_out``, for tests only. ``typefaces`` as listed by ``fonts``.

    With ``near`` pictures are half as large and show one thing or one line of text: cheap training for reading.
    """

    def __init__(self, seed: int, typefaces: Sequence[Path], held_out: bool = False, near: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._typefaces, self._held_out, self._near = typefaces, held_out, near

    def example(self) -> Example:
        rng, fewer = self._rng, 1 + self._near
        width, height = (side // fewer for side in SIZES[rng.integers(len(SIZES))])
        light = str(rng.choice(["light", "dim", "dark"], p=[0.72, 0.18, 0.1]))
        palette = list(COLOURS if light == "light" else IN_LITTLE_LIGHT)
        background = str(rng.choice(palette))
        self._begin(width * 2, height * 2, rgb(rng, background))
        letters = self._letters(palette, background) if rng.random() < (0.75 if self._near else 0.4) else ()
        more = not letters or (not self._near and rng.random() < 0.5)
        shapes = self._shapes(palette, background, few=bool(letters) or self._near) if more else ()
        if (
            not {background, *(one.colour for one in (*shapes, *letters))} & BRIGHT
        ):  # nothing shows how bright the light is
            return self.example()
        scene = np.asarray(self._canvas.reduce(2), np.float32) / np.float32(255)
        bare = 1 - np.asarray(self._covered.reduce(2), np.float32)[:, :, None] / np.float32(255)
        texture = surface(rng, height, width, self._held_out)[:, :, None]
        pixels = taken(rng, (scene * (1 + (texture - 1) * bare)).astype(np.float32), light, self._held_out)
        return Example(pixels, light, background, shapes, letters)

    def _begin(self, width: int, height: int, base: Rgb) -> None:
        """Start an empty surface, perhaps with clutter."""
        self._canvas = Image.new("RGB", (width, height), base)
        self._covered = Image.new("L", (width, height))
        self._taken = list[tuple[float, float, float]]()
        if self._rng.random() < (0.6 if self._held_out else 0.45):
            clutter(self._rng, self._canvas, base, self._held_out)

    def _fill(self, outline: NDArray[np.float64], ink: Rgb) -> None:
        points = [(x, y) for x, y in outline.tolist()]
        ImageDraw.Draw(self._canvas).polygon(points, ink)
        ImageDraw.Draw(self._covered).polygon(points, 255)

    def _shapes(self, palette: Sequence[str], background: str, few: bool) -> tuple[Drawn, ...]:
        """Draw up to three groups; about one picture in ten has none, one in twelve many of a kind."""
        rng = self._rng
        drawn: list[Drawn] = []
        colours = [c for c in palette if c != background and {c, background} not in ALIKE]
        crowd = not few and rng.random() < 0.08
        for _ in range(1 if crowd else rng.choice(4, p=[0.1, 0.5, 0.27, 0.13]) if not few else 1):
            name, colour = SHAPES[rng.integers(len(SHAPES))], str(rng.choice(colours))
            count = int(rng.integers(6, 9)) if crowd else int(rng.choice(5, p=[0.44, 0.2, 0.14, 0.12, 0.1])) + 1
            largest = 0.13 if count > 5 else 0.34 if count == 1 else 0.2
            radius = min(self._canvas.size) * rng.uniform(0.085, largest)
            middle, spread = rng.uniform(0.15, 0.85, 2), rng.choice([0.25, 1.0])
            for _ in range(count):
                corners = self._placed(radius, middle, spread, name)
                if corners is not None:
                    drawn.append(Drawn(name, colour, self._shape(name, colour, corners) / 2))
        return tuple(drawn)

    def _placed(
        self, radius: float, middle: NDArray[np.float64], spread: float, name: str
    ) -> NDArray[np.float64] | None:
        """Return the corners [4, 2] of a rotated and skewed square in a free place, or None if there is no room."""
        rng, size = self._rng, np.array(self._canvas.size)
        for _ in range(30):
            at = (middle + rng.uniform(-0.5, 0.5, 2) * spread) * size
            far = radius * 1.25
            inside = np.all(at > far) and np.all(at < size - far)
            if inside and all(math.hypot(at[0] - x, at[1] - y) > far + r for x, y, r in self._taken):
                break
        else:
            return None
        self._taken.append((at[0], at[1], far))
        most = 180 if name in ("circle", "star", "triangle") else 22
        turn = math.radians(rng.uniform(-most, most))
        half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * radius
        if name == "rectangle":
            half[:, rng.integers(2)] *= rng.uniform(0.42, 0.62)
        half = half * rng.uniform(0.94, 1.06, 2) + rng.uniform(-0.07, 0.07, (4, 2)) * radius
        rotation = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        return at + (half if name in ("circle", "square") else half * 1.1) @ rotation

    def _shape(self, name: str, colour: str, corners: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draw a shape into its quadrilateral, and return its outline."""
        rng, ink, outline = self._rng, rgb(self._rng, colour), stretched(OUTLINES[name], corners)
        self._fill(outline, ink)
        if rng.random() < 0.15 and colour != "black":
            edge = [(x, y) for x, y in [*outline.tolist(), outline[0].tolist()]]
            ImageDraw.Draw(self._canvas).line(edge, shade(ink, rng.uniform(0.3, 0.7)), 2)
        return outline

    def _letters(self, palette: Sequence[str], background: str) -> tuple[Drawn, ...]:
        """Draw one to four characters in a row, on a card or on the surface, in a contrasting colour."""
        rng = self._rng
        chosen = rng.integers(len(CHARACTERS), size=rng.choice([1, 2, 3, 4], p=[0.5, 0.22, 0.16, 0.12]))
        text = "".join(CHARACTERS[i] for i in chosen)
        on_card = rng.random() < 0.6
        paper = "white" if on_card and rng.random() < 0.6 else str(rng.choice(palette)) if on_card else background
        card = rgb(rng, paper)
        ink, colour = _standing_out(rng, card, palette)
        mask, boxes = printed(rng, text, self._typefaces[int(rng.integers(len(self._typefaces)))])
        corners = self._held_up(mask.size, boxes)
        if on_card:
            self._fill(corners, card)
        stamp = mask.transform(
            self._canvas.size, Image.Transform.PERSPECTIVE, perspective(corners, mask.size), Image.Resampling.BILINEAR
        )
        self._canvas.paste(Image.new("RGB", self._canvas.size, ink), mask=stamp)
        self._covered.paste(255, mask=stamp)
        places = (box[[[0, 1], [2, 1], [2, 3], [0, 3]]] for box in boxes)
        return tuple(Drawn(c, colour, stretched(box, corners) / 2) for c, box in zip(text, places, strict=True))

    def _held_up(self, sides: tuple[int, int], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the corners of a card with large print, slightly rotated and skewed."""
        rng, size = self._rng, np.array(self._canvas.size)
        wide, high = sides
        tall = (boxes[:, 3] - boxes[:, 1]).max() * high
        scale = min(size[0] * 0.92 / wide, size[1] * 0.88 / high, size.min() * rng.uniform(0.2, 0.6) / tall)
        half = np.array([[-wide, -high], [wide, -high], [wide, high], [-wide, high]]) / 2 * scale
        turn = math.radians(rng.normal(0, 5))
        half = half @ np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        half += rng.uniform(-0.05, 0.05, (4, 2)) * high * scale
        corners = half - half.min(0) + rng.uniform(0, 1, 2) * np.maximum(size - np.ptp(half, axis=0), 0)
        middle, far = corners.mean(0), np.ptp(corners, axis=0).max() / 2
        self._taken += [(middle[0] + at * far, middle[1], high * scale * 0.75) for at in (-0.75, 0, 0.75)]
        return corners


def rgb(rng: Generator, colour: str) -> Rgb:
    """Return a random colour with this name."""
    low, high, pale, full, dim, bright = HUES[colour]
    hsv = (rng.uniform(low, high) % 360 / 360, rng.uniform(pale, full), rng.uniform(dim, bright))
    return tuple(round(c * 255) for c in colorsys.hsv_to_rgb(*hsv))  # type: ignore[return-value]


def _standing_out(rng: Generator, paper: Rgb, palette: Sequence[str]) -> tuple[Rgb, str]:
    """Return a colour of sufficiently different brightness, and its name."""
    for _ in range(50):
        name = str(rng.choice(["black", "white", *palette]))
        ink = rgb(rng, name)
        if abs(_brightness(ink) - _brightness(paper)) > 90:
            return ink, name
    return ((10, 10, 10), "black") if _brightness(paper) > 100 else ((250, 250, 250), "white")


def _brightness(colour: Rgb) -> float:
    return 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2]


def printed(rng: Generator, text: str, typeface: Path) -> tuple[Image.Image, NDArray[np.float64]]:
    """Draw characters in white on black, mode L, and return the image and their boxes [n, 4], relative to its sides."""
    face = fonts.font(typeface, 96)
    margin, gap = int(rng.uniform(12, 45)), rng.uniform(0, 18) if len(text) > 1 else 0
    x, boxes = float(margin), list[tuple[float, ...]]()
    for character in text:
        left, top, right, bottom = face.getbbox(character)
        boxes.append((x, top, x + right - left, bottom))
        x += face.getlength(character) + gap
    top, bottom = min(box[1] for box in boxes), max(box[3] for box in boxes)
    size = (int(max(box[2] for box in boxes)) + margin, int(bottom - top) + 2 * margin)
    mask = Image.new("L", size)
    draw = ImageDraw.Draw(mask)
    for character, box in zip(text, boxes, strict=True):
        draw.text((box[0] - face.getbbox(character)[0], margin - top), character, 255, font=face)
    found = np.array([(left, t - top + margin, right, b - top + margin) for left, t, right, b in boxes])
    return mask, found / np.array([*size, *size])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--fonts", type=Path, default=fonts.FOLDER)
    args = parser.parse_args()
    typefaces = fonts.held_out(args.fonts) if args.held_out else fonts.learned(args.fonts)
    artist = Artist(args.seed, typefaces, args.held_out)
    args.out.mkdir(parents=True, exist_ok=True)
    for number in range(args.count):
        example = artist.example()
        Image.fromarray(example.pixels).save(args.out / f"{number:03}.png")
        print(f"{number:03} {example.scene}")


if __name__ == "__main__":
    main()
